//! A runner of sandboxes: each command runs in a slot of a pool, with a network of its own that leads to public addresses alone.
//!
//! Everything happens in namespaces that end with this program: `outside` is a machine with a public address, a private one, and that
//! of a cloud's metadata service.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netslot::{Egress, Pool, Port, Protocol, RUN_FOLDER, Slot, Spec, reconcile};
use testns::{Namespace, Node};

const READY: usize = 32;
const SOON: Duration = Duration::from_secs(30);
/// Long enough for a connection that nothing refuses.
const REFUSED: Duration = Duration::from_millis(300);

/// A command in its sandbox.
struct Sandbox {
    slot: Slot,
    child: Child,
}

impl Sandbox {
    /// Takes a slot and starts the command in it. A real runner adds other namespaces, a user and seccomp: all in `Command`.
    fn start(pool: &Pool, script: &str, ports: &[Port]) -> Result<Self> {
        let mut slot = pool.take()?;
        slot.publish(ports)?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = slot.netns()?.run(|| command.spawn())?.context("cannot start /bin/sh")?;
        Ok(Self { slot, child })
    }

    /// Waits for the command, and returns what it wrote. Its slot goes.
    fn finish(self) -> Result<String> {
        let output = self.child.wait_with_output()?;
        ensure!(output.status.success(), "the command failed: {}", output.status);
        self.slot.destroy()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

fn main() -> ExitCode {
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(out: &mut impl Write) -> Result<()> {
    let node = Node::new();
    let outside = outside(&node);
    // What an earlier runner left that was killed.
    reconcile(RUN_FOLDER.as_ref())?;
    let spec = Spec::new("sandbox", "10.88.0.0/16".parse()?).ready(READY).egress(Egress::public());
    let (start, pool) = (Instant::now(), Pool::open(spec)?);
    pool.wait_ready(SOON)?;
    writeln!(out, "{READY} slots are ready after {:.0?}.", start.elapsed())?;

    let start = Instant::now();
    let sandbox = Sandbox::start(&pool, "wc -l </proc/net/dev", &[])?;
    let took = start.elapsed();
    let links = sandbox.finish()?.parse::<u32>()? - 2;
    writeln!(out, "A command began in its own network after {took:.1?}; it saw {links} links.")?;

    let mut slot = pool.take()?;
    for (what, to) in
        [("the internet", "192.0.2.2"), ("the metadata service", "169.254.169.254"), ("a private host", "10.9.9.9")]
    {
        let answer = if reaches(&slot, &outside, to.parse()?)? { "reaches" } else { "does not reach" };
        writeln!(out, "A slot {answer} {what}, {to}.")?;
    }

    let server = slot.netns()?.run(|| TcpListener::bind("0.0.0.0:80"))??;
    slot.publish(&[Port::new(Protocol::Tcp, 8080, 80)])?;
    let port = SocketAddr::new("192.0.2.1".parse()?, 8080);
    let client = outside.enter(|| TcpStream::connect_timeout(&port, SOON)).context("the port leads nowhere")?;
    ensure!(server.accept()?.1 == client.local_addr()?, "another client came");
    writeln!(out, "Port 8080 of the node leads to port 80 of the slot.")?;
    slot.check()?;

    let slots = (0..READY).map(|_| pool.take()).chain([Ok(slot)]).collect::<netslot::Result<Vec<_>>>()?;
    let (start, count) = (Instant::now(), slots.len());
    pool.destroy(slots)?;
    writeln!(out, "{count} slots are destroyed after {:.0?}.", start.elapsed())?;
    pool.close()?;
    let left = node.host().links().into_iter().filter(|link| link.name.starts_with("ns")).count();
    ensure!(left == 0, "{left} links are left");
    writeln!(out, "Left on the node: empty tables of rules.")?;
    Ok(())
}

/// Returns whether a connection from the slot to the machine gets there.
fn reaches(slot: &Slot, outside: &Namespace, to: IpAddr) -> Result<bool> {
    let listener = outside.enter(|| TcpListener::bind((to, 0)))?;
    let address = listener.local_addr()?;
    Ok(slot.netns()?.run(|| TcpStream::connect_timeout(&address, REFUSED))?.is_ok())
}

/// A machine outside, to which the node has routes.
fn outside(node: &Node) -> Namespace {
    let outside = node.remote("outside");
    node.host().add_veth("uplink0", &outside, "eth0");
    for (near, far) in
        [("192.0.2.1/24", "192.0.2.2/24"), ("169.254.169.1/24", "169.254.169.254/24"), ("10.9.9.1/24", "10.9.9.9/24")]
    {
        node.host().add_address("uplink0", near);
        outside.add_address("eth0", far);
    }
    outside
}
