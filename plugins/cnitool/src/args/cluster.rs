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
    },
    /// Write back what this node holds, after the store was restored from a copy
    Repair(Shared),
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

/// A network whose addresses nodes share.
#[derive(Debug, Args)]
pub(crate) struct Shared {
    /// Network, by name, or the path of its file (with a /)
    #[arg(add = ArgValueCompleter::new(completions::networks))]
    pub(crate) network: String,
}
