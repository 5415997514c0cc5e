//! What a record costs a call: finding the node's setting, making the record of an ADD with twelve steps, writing it to a file.
//!
//! `cargo run --release -p call-log --example cost`; with the path of an installed `loopback` and that of a namespace behind
//! `--`, also what a whole call takes with and without the log.

use call_log::{By, Record, Sink, Step};
use std::error::Error;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 10_000;
const CALLS: usize = 400;

fn record() -> Record {
    let step = |number: u64| Step { what: "set up the container's side".to_owned(), us: 100 * number };
    Record {
        by: By::Plugin,
        begin_us: 1_700_000_000_000_000,
        verb: "ADD".to_owned(),
        network: "pods".to_owned(),
        container: "4f5e6d7c8b9a".repeat(5),
        ifname: "eth0".to_owned(),
        plugin: "bridge".to_owned(),
        duration_us: 4200,
        steps: (0..12).map(step).collect(),
        addresses: vec!["10.1.0.5/24".to_owned(), "fd00::5/64".to_owned()],
        ..Record::default()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let sink = Sink::File(folder.path().join("calls.log"));
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let by_node = Sink::of_node();
        sink.write(&record());
        times.push(begin.elapsed().as_nanos() / 100);
        drop(by_node);
    }
    times.sort_unstable();
    let us = |time: u128| format!("{}.{} us", time / 10, time % 10);
    let (half, most) = (us(times[ROUNDS / 2]), us(times[ROUNDS * 99 / 100]));
    writeln!(std::io::stdout(), "a record takes {half}; of a hundred, 99 take at most {most}")?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [plugin, netns] = words.as_slice() {
        let log = folder.path().join("whole.log").display().to_string();
        let (mut off, mut on) = (Vec::new(), Vec::new());
        for round in 0..CALLS {
            // In turn, so that both have the same neighbours.
            for is_on in [round % 2 == 0, round % 2 == 1] {
                let took = call(plugin, netns, is_on.then_some(&*log))?;
                if is_on { on.push(took) } else { off.push(took) }
            }
        }
        [&mut off, &mut on].iter_mut().for_each(|times| times.sort_unstable());
        let (off, on) = (off[CALLS / 2], on[CALLS / 2]);
        writeln!(
            std::io::stdout(),
            "a call takes {off} us without, {on} us with the log: {} us more",
            on.saturating_sub(off)
        )?;
    }
    Ok(())
}

/// ADD of loopback, in microseconds.
fn call(plugin: &str, netns: &str, log: Option<&str>) -> Result<u128, Box<dyn Error>> {
    let mut command = Command::new(plugin);
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null());
    command.env("CNI_COMMAND", "ADD").env("CNI_CONTAINERID", "c").env("CNI_IFNAME", "eth0").env("CNI_NETNS", netns);
    if let Some(log) = log {
        command.env("CNI_LOG", log);
    }
    let begin = Instant::now();
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(br#"{"cniVersion":"1.0.0","name":"lo","type":"loopback"}"#)?;
    }
    let status = child.wait()?;
    let took = begin.elapsed().as_micros();
    if status.success() { Ok(took) } else { Err(format!("{plugin} ended with {status}").into()) }
}
