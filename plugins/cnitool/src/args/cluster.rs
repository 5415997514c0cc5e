//! Arguments of `cnitool cluster`.

use crate::completions;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use std::path::PathBuf;

/// Verbs about the addresses that nodes share.
#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Show which node owns which addresses, the claims, and what is free
    Show(Shared),
    /// Check that nothing is held twice: the store, and what this node holds
    Check {
        #[command(flatten)]
        shared: Shared,
        /// Ask the network, too, by ARP and neighbour discovery, who answers for each address
        #[arg(long)]
        probe: bool,
        /// The link to ask on; by default the bridge or master of the network's configuration
        #[arg(long, requires = "probe")]
        link: Option<String>,
    },
    /// Free the addresses of a node that is lost, when it trusts them no longer
    Forget {
        #[command(flatten)]
        shared: Shared,
        /// The node, as show names it
        node: String,
        /// The node is off: do not wait
        #[arg(long)]
        fenced: bool,
        /// Also a node that was heard just now, or whose addresses the network answers for
        #[arg(long)]
        force: bool,
        /// Let the node go on, while nothing of it is freed yet
        #[arg(long, conflicts_with_all = ["fenced", "force"])]
        cancel: bool,
    },
    /// Make the first record of a new network, whose store is a folder
    Init(Shared),
    /// Write back what this node holds, after the store was restored from a copy
    Repair {
        #[command(flatten)]
        shared: Shared,
        #[command(flatten)]
        phase: Phase,
    },
    /// Write down what this node gave before it had the store, on each node before the first ADD
    Adopt {
        #[command(flatten)]
        shared: Shared,
        #[command(flatten)]
        phase: Phase,
    },
    /// Give all addresses of this node back, before its machine ends
    Leave {
        #[command(flatten)]
        shared: Shared,
        /// Also those of containers, as the machine ends with them
        #[arg(long)]
        ending: bool,
    },
    /// Free the addresses of a claim that no node holds
    Release {
        #[command(flatten)]
        shared: Shared,
        /// The claim, as show names it
        claim: String,
    },
    /// Make the addresses of whereabouts' IPPools claims, so that no node gives them
    Import {
        #[command(flatten)]
        shared: Shared,
        /// IPPools as kubectl prints them with --output json
        file: PathBuf,
    },
}

/// Before and after what each node does.
#[derive(Debug, Args)]
pub(crate) struct Phase {
    /// Let no node claim until all have done this
    #[arg(long)]
    pub(crate) begin: bool,
    /// Let nodes claim again
    #[arg(long, conflicts_with = "begin")]
    pub(crate) end: bool,
}

/// A network whose addresses nodes share.
#[derive(Debug, Args)]
pub(crate) struct Shared {
    /// Network, by name, or the path of its file (with a /)
    #[arg(add = ArgValueCompleter::new(completions::networks))]
    pub(crate) network: String,
}
