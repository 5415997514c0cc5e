//! What a record costs a call: finding the node's setting, making the record of an ADD with twelve steps, writing it to a file.
//!
//! `cargo run --release -p call-log --example cost`

use call_log::{By, Record, Sink, Step};
use std::error::Error;
use std::io::Write;
use std::time::Instant;

const ROUNDS: usize = 10_000;

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
    Ok(())
}
