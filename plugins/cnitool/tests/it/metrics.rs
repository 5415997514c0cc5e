//! `cnitool metrics` over HTTP, and the files of other programs that read it.

use crate::fixture::Tool;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testns::Node;

/// A line of the page without its number.
fn number<'a>(page: &'a str, series: &str) -> &'a str {
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    lines.next().unwrap_or_else(|| panic!("no {series} in {page}"))
}

/// `cnitool metrics --listen`, and where it listens.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(tool: &Tool) -> Self {
        let mut child =
            tool.command().args(["metrics", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics")).unwrap();
        Self { address: address.to_owned(), child }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// All that comes back.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        // A reset after the answer is no less an answer.
        drop(stream.read_to_end(&mut answer));
        String::from_utf8(answer).unwrap()
    }

    fn get(&self, path: &str) -> String {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").as_bytes())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_scrape_over_http_gets_the_page_and_nothing_else_is_served() {
    let _node = Node::new();
    let tool = Tool::new();
    let mut server = Server::start(&tool);
    let page = server.get("/metrics");
    assert!(
        page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("content-type: text/plain; version=0.0.4"),
        "{page}"
    );
    assert_eq!(number(&page, "cni_log_up"), "0");
    let head = server.ask(b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.contains(" 200 OK") && !head.contains("cni_log_up"), "{head}");
    assert!(server.get("/").contains(" 404 "));
    assert!(server.get("/metrics/../etc/passwd").contains(" 404 "));
    let post = server.ask(b"POST /metrics HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\n\r\n");
    assert!(post.contains(" 405 ") && post.contains("allow: GET, HEAD"), "{post}");
    kill(Pid::from_raw(server.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(143));
}

/// Any user can open connections, and send nothing.
#[test]
fn hundreds_of_slow_clients_and_those_that_speak_nonsense_do_not_keep_a_scrape_out() {
    let _node = Node::new();
    let tool = Tool::new();
    let server = Server::start(&tool);
    let mut slow: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
    for stream in &mut slow {
        // An early one may have lost its place.
        drop(stream.write_all(b"GET /metr"));
    }
    let begin = Instant::now();
    assert!(server.get("/metrics").contains("cni_log_up"));
    // No slow client was waited for.
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    assert!(server.ask(b"\x16\x03\x01\x00\xff\r\n\r\n").contains(" 400 "));
    assert!(server.ask(&[b'x'; 100_000]).contains(" 4"));
    // The slow ones are turned away in time.
    let ended = slow[199].read_to_end(&mut Vec::new());
    assert!(!ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring")
}

/// Runs a program of the machine; `None` if it is not installed.
pub(crate) fn run(program: &str, words: &[&Path]) -> Option<String> {
    let output = match Command::new(program).args(words).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            testns::skip(program, &format!("{program} is not installed"));
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program}: {said}");
    Some(said)
}

#[test]
fn systemd_takes_the_units() {
    let tool = Tool::new();
    let mut units = vec![PathBuf::from("verify"), PathBuf::from("--man=no")];
    for entry in fs::read_dir(folder()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".service") || name.ends_with(".timer") {
            let unit = fs::read_to_string(entry.path()).unwrap();
            let unit = unit.replace("/opt/cni/bin/cnitool", env!("CARGO_BIN_EXE_cnitool"));
            units.push(tool.write(&format!("units/{}", name.replace('@', "@pods")), &unit));
        }
    }
    assert_eq!(units.len(), 2 + 6);
    let words: Vec<&Path> = units.iter().map(PathBuf::as_path).collect();
    if let Some(said) = run("systemd-analyze", &words) {
        assert_eq!(said, "", "no complaint");
    }
}

#[test]
fn prometheus_takes_the_rules() {
    run("promtool", &[Path::new("check"), Path::new("rules"), &folder().join("alerts.yml")]);
}

#[test]
fn rules_and_board_name_only_series_that_metrics_has() {
    let read = |file: PathBuf| fs::read_to_string(file).unwrap();
    let series = |text: &str| -> BTreeSet<String> {
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        let names = words.filter(|word| word.starts_with("cni_"));
        names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
    };
    let page = read(folder().join("../METRICS.md"))
        .replace("`_used`, `_free`", "`cni_range_addresses_used` `cni_range_addresses_free`");
    let known = series(&page);
    let board = read(folder().join("grafana.json"));
    serde_json::from_str::<serde_json::Value>(&board).unwrap();
    let used = series(&(read(folder().join("alerts.yml")) + &board));
    assert!(used.len() >= 6 && used.is_subset(&known), "{:?}", used.difference(&known).collect::<Vec<_>>());
}
