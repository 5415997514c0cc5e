//! `cnitool metrics`: printed, in a file, over HTTP.

use crate::fixture::Tool;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use testns::Node;

const RECORD: &str = r#"{"CNI_BY":"plugin","CNI_BEGIN_US":"1700000000000000","CNI_VERB":"ADD","CNI_PLUGIN":"bridge","CNI_NETWORK":"pods","CNI_DURATION_US":"4200"}
"#;

/// A line of the page without its number.
fn number<'a>(page: &'a str, series: &str) -> &'a str {
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    lines.next().unwrap_or_else(|| panic!("no {series} in {page}"))
}

#[test]
fn the_page_has_the_node_and_the_log() {
    let tool = Tool::new();
    let log = tool.write("calls.log", RECORD);
    let page = tool.run(&["metrics", "--from", log.to_str().unwrap()]).ok();
    assert_eq!(number(&page, r#"cni_calls_total{plugin="bridge",side="plugin",verb="ADD"}"#), "1");
    assert_eq!(number(&page, "cni_log_up"), "1");
    assert_eq!(number(&page, r#"cni_attachments{network="net",state="lives"}"#), "0");
    assert_eq!(number(&page, r#"cni_doctor_findings{kind="leftover"}"#), "0");
}

#[test]
fn only_a_log_that_is_named_has_to_be_there() {
    let tool = Tool::new();
    let page = tool.ended(tool.command().args(["metrics"]).env("CNI_LOG", "/nonexistent/calls.log")).ok();
    assert_eq!(number(&page, "cni_log_up"), "0");
    let failed = tool.run(&["metrics", "--from", "/nonexistent/calls.log"]);
    assert_eq!(failed.code, 1);
    assert!(failed.stderr.contains("cannot read log /nonexistent/calls.log"), "{}", failed.stderr);
}

/// Other users may write the log's folder.
#[test]
fn a_log_without_end_is_none() {
    let tool = Tool::new();
    let log = tool.path("calls.log");
    std::os::unix::fs::symlink("/dev/zero", &log).unwrap();
    for words in [["metrics", "--from", log.to_str().unwrap()], ["log", "--from", log.to_str().unwrap()]] {
        let failed = tool.run(&words);
        assert_eq!(failed.code, 1);
        assert!(failed.stderr.contains("it is no regular file"), "{}", failed.stderr);
    }
}

#[test]
fn the_file_is_replaced_whole_and_everyone_can_read_it() {
    let tool = Tool::new();
    let file = tool.write("cni.prom", "old");
    // A reader that has it open keeps what it had: the file is another one afterwards.
    let mut before = std::fs::File::open(&file).unwrap();
    tool.run(&["metrics", "--output", file.to_str().unwrap()]).ok();
    let mut old = String::new();
    before.read_to_string(&mut old).unwrap();
    assert_eq!(old, "old");
    assert_eq!(number(&tool.read("cni.prom"), "cni_log_up"), "0");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    // A link is not replaced, nor a device.
    let link = file.with_file_name("link.prom");
    std::os::unix::fs::symlink("cni.prom", &link).unwrap();
    let refused = tool.run(&["metrics", "--output", link.to_str().unwrap()]);
    assert!(refused.code == 1 && refused.stderr.contains("it is no regular file"), "{}", refused.stderr);
    assert!(link.is_symlink());
    // In the working folder, too.
    tool.ended(tool.command().args(["metrics", "--output", "here.prom"]).current_dir(file.parent().unwrap())).ok();
    assert_eq!(number(&tool.read("here.prom"), "cni_log_up"), "0");
}

#[test]
fn only_the_loopback_is_listened_on() {
    let tool = Tool::new();
    for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:80", "localhost"] {
        assert_eq!(tool.run(&["metrics", "--listen", address]).code, 2, "{address}");
    }
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

#[test]
fn clients_that_are_slow_or_speak_nonsense_do_not_keep_others_from_the_page() {
    let _node = Node::new();
    let tool = Tool::new();
    let server = Server::start(&tool);
    let mut slow: Vec<TcpStream> = (0..15).map(|_| server.connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET /metr").unwrap());
    assert!(server.get("/metrics").contains("cni_log_up"));
    assert!(server.ask(b"\x16\x03\x01\x00\xff\r\n\r\n").contains(" 400 "));
    assert!(server.ask(&[b'x'; 100_000]).contains(" 4"));
    // The slow ones are turned away in time, and their places are free again.
    for stream in &mut slow {
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(!ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
    let mut more: Vec<TcpStream> = (0..15).map(|_| server.connect()).collect();
    more.iter_mut().for_each(|stream| stream.shutdown(Shutdown::Write).unwrap());
    assert!(server.get("/metrics").contains("cni_log_up"));
}

/// Any user can open connections, and send nothing.
#[test]
fn hundreds_of_slow_clients_do_not_keep_a_scrape_out() {
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
}

/// A name in a list or a log may come from another user; the page may be read on a terminal.
#[test]
fn names_on_the_page_do_not_act_on_a_terminal() {
    let tool = Tool::new();
    let evil = RECORD.replace("bridge", "b\\u001b[2J\\u009b1m\\u202ex");
    let log = tool.write("calls.log", &evil);
    let page = tool.run(&["metrics", "--from", log.to_str().unwrap()]).ok();
    assert!(!page.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{page}");
    let series = r#"cni_calls_total{plugin="b\\u{1b}[2J\\u{9b}1m\\u{202e}x",side="plugin",verb="ADD"}"#;
    assert_eq!(number(&page, series), "1");
}

/// A folder of another user may have a pipe in the place of the unfinished file.
#[test]
fn a_pipe_in_the_folder_does_not_make_metrics_wait() {
    let tool = Tool::new();
    let file = tool.write("cni.prom", "old");
    nix::unistd::mkfifo(&file.with_file_name(".cni.prom.new"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    tool.run(&["metrics", "--output", file.to_str().unwrap()]).ok();
    assert_eq!(number(&tool.read("cni.prom"), "cni_log_up"), "0");
    assert!(!file.with_file_name(".cni.prom.new").exists());
}
