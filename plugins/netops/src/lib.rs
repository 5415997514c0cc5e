//! What plugins do to a node, one kernel object a module.
//!
//! netops knows nothing of CNI: it names links, addresses, routes, rules, sysctls and files, and says exactly
//! what the kernel answered.
//!
//! ```no_run
//! let container = netops::Kernel::in_netns(&netops::Netns::open("/run/netns/c1")?)?;
//! for link in netops::link::list(&container, None)? {
//!     println!("{} {:?}", link.name, netops::addr::list(&container, &link)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A veth from one namespace to another, with an address at each end and a route; all of it ends with the namespaces:
//!
//! ```
//! use netops::link::{self, Settings, Target, Veth};
//! use netops::route::{self, Route};
//! use netops::{Errno, Kernel, Netns, addr};
//!
//! let (node, container) = (Netns::create()?, Netns::create()?);
//! let (host, inside) = (Kernel::in_netns(&node)?, Kernel::in_netns(&container)?);
//! let net = |text: &str| text.parse::<ipnetwork::IpNetwork>();
//!
//! let pair = Veth { up: true, alias: "c1's", peer_netns: Some(&container), ..Veth::new("veth0", "eth0") };
//! let veth0 = link::create_veth(&host, &pair)?;
//! let up = Settings { up: Some(true), ..Settings::default() };
//! let eth0 = link::set_and_get(&inside, &Target::named("eth0"), &up)?;
//! host.run(addr::add(&veth0, &net("10.1.0.1/24")?.into()))?;
//! let default = Route::new(net("0.0.0.0/0")?, Some("10.1.0.1".parse()?), Some(eth0.index));
//! inside.run_all(vec![addr::add(&eth0, &net("10.1.0.2/24")?.into()), route::add(&default)])?;
//!
//! assert_eq!(route::lookup(&inside, "192.0.2.1".parse()?)?.gateway, default.gateway);
//! let again = inside.run(route::add(&default)).unwrap_err(); // with operation, object, namespace and the kernel's words
//! assert_eq!(again.os_errno(), Some(Errno::EEXIST));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules in reading order:
//!
//! | Module | What it has |
//! |---|---|
//! | [`netlink_connection`] | [`Kernel`]: a netlink connection that acts on one namespace; [`Request`]: one change as data, sent by [`Kernel::run`] or, several at once, [`Kernel::run_all`] |
//! | [`netns`] | [`Netns`]: open a namespace, compare it, run a closure inside |
//! | [`link`] | [`Link`](link::Link), its [`Kind`](link::Kind); `get` `find` `list`, `create` `create_bridge` `create_veth`, `set`, `transfer` |
//! | [`veth_peer`] | the other end of a veth in another namespace |
//! | [`all_namespaces`] | which addresses the node's namespaces have |
//! | [`bridge_port`] | a port's hairpin, isolation and VLANs |
//! | [`link_removal`] | removing links, one without waiting for the kernel's grace period, many in one |
//! | [`addr`], [`route`] | addresses and routes: `add` `delete` `list`, route lookup |
//! | [`arp`] | whether another station of a link has an IPv4 address |
//! | [`neighbour`] | the Ethernet addresses that an administrator has fixed |
//! | [`rule`] | policy rules: which table a source's packets are routed by |
//! | [`ethtool`] | a link's offloads |
//! | [`tc`] | token buckets, and what comes in sent through another link |
//! | [`watch`] | [`Watch`](watch::Watch): wait for a link to come up, by announcements |
//! | [`packet`] | UDP on a link without addresses |
//! | [`probe`] | packets that ask the kernel what it does with a container's, and the fate of each |
//! | [`probe_neighbours`] | which stations of a link answer for addresses |
//! | [`sysctl`] | `/proc/sys/net`, in a namespace |
//! | [`nft`] | a ruleset as data, applied in one transaction |
//! | [`conntrack`] | UDP flows forgotten, by where they were sent |
//! | [`listening_sockets`] | sockets of the node that wait for packets, and their processes |
//! | [`lock`], [`mod@file`] | the one file lock; files written all or not at all |
//! | [`boot`], [`child_process`] | which boot of the machine this is; a child's input, output and end |
//! | [`kernel_probe`] | what the kernel can do, tried once a boot |
//! | [`txn`] | undoes what a failed, cancelled or panicking plan has done |
//! | [`error`] | [`OpError`]: operation, object, place, errno, extended ack |
//! | [`feature`] | what a kernel may lack, with its module and config option |

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod error;
pub mod feature;

pub mod netlink_connection;
pub mod netns;

mod answers_by_request;
mod buffer;
pub mod helper_process;
mod netlink_frames;
mod text;
mod unsafe_calls;

pub mod link;
mod link_attributes;
mod mac;

pub mod all_namespaces;
pub mod arp;
pub mod bridge_port;
pub mod link_removal;
pub mod veth_peer;

pub mod addr;
pub mod route;
pub mod rule;

pub mod neighbour;

pub mod ethtool;

pub mod tc;

pub mod watch;

pub mod packet;
pub mod probe_neighbours;

pub mod probe;

pub mod sysctl;

pub mod nft;

pub mod lock;

pub mod file;

pub mod listening_sockets;

pub mod boot;
pub mod child_process;

pub mod kernel_probe;

pub mod txn;

#[doc(hidden)]
pub mod fuzzing;

pub use addr::Family;
pub use error::{Errno, OpError};
pub use feature::Feature;
pub use netlink_connection::{Kernel, Request};
pub use netns::Netns;
pub use nft::conntrack;
