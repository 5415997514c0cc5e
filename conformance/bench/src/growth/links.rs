//! Calls while others make and remove links.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use testns::Namespace;

use crate::comparison::Comparison;

/// Links made, and removed, per second.
const PER_SECOND: usize = 500;
/// So many times a second, some at once: removing a link takes the kernel 20 ms, whether it is one or many.
const TICKS: usize = 10;

/// Lets each subject in turn do everything for so many pods while its own node's links come and go; only then, so that
/// no subject pays for another's. Returns how many links per second were made and removed.
pub(super) fn beside_churn(comparison: &mut Comparison, pods: usize) -> Result<f64, String> {
    let pods = comparison.add_pods(pods)?;
    let verbs = comparison.scene.verbs;
    let mut least = f64::INFINITY;
    for compared in &mut comparison.compared_subjects {
        // The calls are made on the node's thread, so the churn has one of its own in the same namespace.
        let host = compared.node.run(|node| node.host().clone())?;
        let (stop, stopped) = channel::<()>();
        let rate = thread::scope(|scope| {
            let churn = scope.spawn(move || {
                let start = Instant::now();
                let mut made = 0;
                for tick in 1.. {
                    made += round(&host);
                    let next = Duration::from_secs(1) * tick / u32::try_from(TICKS).unwrap_or(1);
                    match stopped.recv_timeout(next.saturating_sub(start.elapsed())) {
                        Err(RecvTimeoutError::Timeout) => {}
                        Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
                made as f64 / start.elapsed().as_secs_f64()
            });
            for pod in pods.clone() {
                verbs.iter().for_each(|verb| compared.call(*verb, pod, true));
            }
            drop(stop);
            churn.join().map_err(|_panic| "cannot make and remove links: stderr says why".to_owned())
        })?;
        least = least.min(rate);
    }
    Ok(least)
}

fn round(host: &Namespace) -> usize {
    host.pass_links(PER_SECOND / TICKS)
}
