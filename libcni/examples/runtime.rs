//! A runtime in small: gives a container that another program has made its networks, and takes them away again.
//!
//!     runtime PLUGINS NETWORKS add|check|del NETWORK CONTAINER NETNS
//!     runtime PLUGINS NETWORKS list

use std::error::Error;
use std::io::{Write, stdout};

use libcni::{Runtime, RuntimeConf, conflist};

const USAGE: &str = "usage: runtime PLUGINS NETWORKS add|check|del NETWORK CONTAINER NETNS\n       \
                     runtime PLUGINS NETWORKS list";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [plugins, networks, verb, ref rest @ ..] = words[..] else { return Err(USAGE.into()) };
    // The cache, by default /var/lib/cni, is what DEL needs after a restart of the runtime; other runtimes share it.
    let runtime = Runtime::builder().plugin_dirs([plugins]).build();
    let (name, container, netns) = match (verb, rest) {
        ("list", []) => return list(&runtime),
        ("add" | "check" | "del", [name, container, netns]) => (*name, *container, *netns),
        _ => return Err(USAGE.into()),
    };
    let network = conflist::find(networks.as_ref(), name)?.network;
    let attachment = RuntimeConf::new(container, "eth0")?.netns(netns);
    match verb {
        // An ADD that fails is rolled back. One that does not return, as its runtime was killed, is finished by DEL.
        "add" => {
            for ip in runtime.add(&network, &attachment).await?.ips {
                writeln!(stdout(), "{}", ip.address)?;
            }
        }
        "check" => runtime.check(&network, &attachment).await?,
        // DEL may be repeated, and does not need the namespace any more.
        _ => runtime.del(&network, &attachment).await?,
    }
    Ok(())
}

/// The attachments that this runtime, or another with the same cache, has made.
fn list(runtime: &Runtime) -> Result<(), Box<dyn Error>> {
    for entry in runtime.cache().list(None)?.cached {
        writeln!(stdout(), "{} {}", entry.network, entry.attachment.id.container_id)?;
    }
    Ok(())
}
