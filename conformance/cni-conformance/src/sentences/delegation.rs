//! SPEC 4: plugins that call plugins.

use super::{Bound, Force, Sentence, sentence};
use Bound::Plugins;
use Force::{Must, Plain, Should};

const DELEGATION: &str = "SPEC 4, Plugin Delegation";
const PROTOCOL: &str = "SPEC 4, Delegated Plugin protocol";
const PROCEDURE: &str = "SPEC 4, Delegated plugin execution procedure";

pub(super) const SENTENCES: &[Sentence] = &[
    sentence(
        DELEGATION,
        Must,
        Plugins,
        "An IPAM plugin determines address, gateway and routes, and returns them for its caller to apply.",
        &[
            "ipam.gives-an-address",
            "ipam.exhausted-is-an-error",
            "ipam.makes-no-interface",
            "delegation.result-is-used",
        ],
    ),
    sentence(
        PROTOCOL,
        Plain,
        Plugins,
        "A delegate is an executable that is searched for in the folders of CNI_PATH.",
        &["delegation.looks-in-cni-path"],
    ),
    sentence(
        PROTOCOL,
        Must,
        Plugins,
        "It gets all environment variables that its caller got.",
        &["delegation.same-environment"],
    ),
    sentence(
        PROTOCOL,
        Plain,
        Plugins,
        "It gets the complete configuration of its caller on stdin.",
        &["delegation.complete-config"],
    ),
    sentence(
        PROTOCOL,
        Plain,
        Plugins,
        "It succeeded if it exits with 0 and prints a result.",
        &["delegation.del-after-failed-add"],
    ),
    sentence(
        PROCEDURE,
        Should,
        Plugins,
        "Its caller looks it up in CNI_PATH, and runs it with the environment and configuration that it has itself.",
        &["delegation.looks-in-cni-path", "delegation.same-environment", "delegation.complete-config"],
    ),
    sentence(PROCEDURE, Should, Plugins, "Its stderr comes out of its caller's.", &["delegation.stderr"]),
    sentence(
        PROCEDURE,
        Must,
        Plugins,
        "With CHECK, DEL and GC the delegates are called too.",
        &["delegation.forwards", "gc.forwards"],
    ),
    sentence(
        PROCEDURE,
        Should,
        Plugins,
        "If a delegate returns an error, its caller does.",
        &["delegation.error", "delegation.same-error", "gc.goes-on-past-errors"],
    ),
    sentence(
        PROCEDURE,
        Should,
        Plugins,
        "If its ADD fails, it is called with DEL before its caller returns failure.",
        &["delegation.del-after-failed-add", "add.failed-leaves-nothing"],
    ),
];
