//! How long a pod takes through containerd, with our bridge, host-local and loopback and with the reference's.

use std::time::{Duration, Instant};

use clients::Whose;
use clients::containerd::Daemon;
use clients::containerd::runtime_v1::PodSandboxConfig;
use testns::note;

use crate::cri::with_list;
use crate::networks;

const PODS: u32 = 11;

/// A measurement and no test: `conformance/clients/run containerd -- --ignored --test-threads 1 measure`.
#[test]
#[ignore = "measures"]
fn measure() {
    for whose in [Whose::Ours, Whose::Reference] {
        let Some(daemon) = Daemon::start_with(whose) else { return };
        let mut list = networks::pods();
        list["plugins"].as_array_mut().unwrap().truncate(1);
        let cri = with_list(&daemon, &list);
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for number in 0..PODS {
            let config = PodSandboxConfig::named(&daemon, &format!("pod{number}"));
            let start = Instant::now();
            let pod = cri.run_pod(config);
            up.push(start.elapsed());
            let start = Instant::now();
            cri.stop(&pod);
            down.push(start.elapsed());
            cri.remove(&pod);
        }
        let [up, down] = [up, down].map(|times| median(times).as_millis());
        note(&format!("{whose:?}: RunPodSandbox {up} ms, StopPodSandbox {down} ms (medians of {PODS})"));
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
