//! SPEC 3: what runtimes do, and what that asks of plugins.

use super::{Bound, Force, Sentence, sentence, unasked};
use Bound::{Both, Plugins, Runtimes};
use Force::{May, Must, Plain, Should};

const EXECUTION: &str = "SPEC 3, Execution of Network Configurations";
const LIFECYCLE: &str = "SPEC 3, Lifecycle & Ordering";
const PARAMETERS: &str = "SPEC 3, Attachment Parameters";
const ADDING: &str = "SPEC 3, Adding an attachment";
const DELETING: &str = "SPEC 3, Deleting an attachment";
const CHECKING: &str = "SPEC 3, Checking an attachment";
const COLLECTING: &str = "SPEC 3, Garbage-collecting a network";
const DERIVING: &str = "SPEC 3, Deriving request configuration";

pub(super) const SENTENCES: &[Sentence] = &[
    sentence(
        EXECUTION,
        Plain,
        Both,
        "An attachment is told from others by container ID and interface name.",
        &["del.leaves-others-alone", "lifecycle.result-is-of-attachment"],
    ),
    sentence(LIFECYCLE, Must, Runtimes, "The namespace is made before any plugin is called.", &["call.netns"]),
    sentence(
        LIFECYCLE,
        Must,
        Runtimes,
        "No two operations for one container run at once, those of several interfaces neither.",
        &["lifecycle.one-at-a-time"],
    ),
    sentence(LIFECYCLE, May, Runtimes, "Those for different containers may.", &["lifecycle.containers-in-parallel"]),
    sentence(
        LIFECYCLE,
        Must,
        Runtimes,
        "GC excludes ADD and DEL: it waits for those in progress, and they for it.",
        &["lifecycle.gc-alone"],
    ),
    sentence(
        LIFECYCLE,
        Must,
        Plugins,
        "Plugins bear to be run at once for different containers, and lock what they share.",
        &[
            "add.serves-containers-at-once",
            "add.leaves-others-alone",
            "concurrency.containers-at-once",
            "concurrency.first-containers-at-once",
            "concurrency.small-pool",
            "ipam.no-address-twice",
        ],
    ),
    sentence(
        LIFECYCLE,
        Must,
        Runtimes,
        "DEL follows every ADD in the end, also one that failed.",
        &["lifecycle.del-after-failed-add", "lifecycle.del-again-after-failed-del"],
    ),
    sentence(LIFECYCLE, May, Both, "DEL may be followed by more of them.", &["del.is-repeatable"]),
    sentence(
        LIFECYCLE,
        Should,
        Runtimes,
        "The configuration does not change between ADD and DEL.",
        &["lifecycle.del-without-config"],
    ),
    unasked(
        LIFECYCLE,
        Should,
        Runtimes,
        "Nor between attachments.",
        "it binds those who write configurations; a file that changes is none of the runtime's doing",
    ),
    unasked(
        LIFECYCLE,
        Plain,
        Runtimes,
        "The runtime removes the namespace.",
        "a driver has no word for the end of a container: the kit makes the namespaces, or the runtime's own ends them",
    ),
    sentence(
        PARAMETERS,
        Plain,
        Runtimes,
        "Container ID, namespace, interface name and arguments are CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_ARGS.",
        &["call.container-id", "call.netns", "call.ifname", "call.args"],
    ),
    sentence(
        PARAMETERS,
        Plain,
        Runtimes,
        "Capability arguments are keys and values of any type.",
        &["derive.runtime-config"],
    ),
    sentence(PARAMETERS, Must, Runtimes, "The folders of plugins are told in CNI_PATH.", &["call.path"]),
    sentence(
        PARAMETERS,
        Plain,
        Runtimes,
        "The runtime has a list of folders of plugins; what their order means is not said.",
        &["config.search-order"],
    ),
    sentence(
        ADDING,
        Plain,
        Runtimes,
        "The executable of type is looked up, and it is an error if there is none; so with DEL, CHECK and GC.",
        &["config.missing-executable"],
    ),
    sentence(ADDING, Plain, Runtimes, "ADD runs the plugins in their order.", &["chain.add-in-order"]),
    sentence(
        ADDING,
        Plain,
        Runtimes,
        "The first has no prevResult, each other one that of the plugin before it.",
        &["derive.no-first-result", "derive.result-of-the-one-before"],
    ),
    sentence(
        ADDING,
        Plain,
        Runtimes,
        "A plugin's error ends ADD, and is told to the caller.",
        &["chain.add-stops-at-error", "chain.error-is-told", "answers.status-counts"],
    ),
    sentence(
        ADDING,
        Must,
        Runtimes,
        "The last plugin's result is stored persistently.",
        &["chain.del-has-result", "chain.check-has-result", "chain.add-gives-last-result"],
    ),
    sentence(DELETING, Plain, Runtimes, "DEL runs the plugins in reverse.", &["chain.del-in-reverse"]),
    sentence(
        DELETING,
        Plain,
        Runtimes,
        "prevResult is the final result of ADD, for each of them.",
        &["chain.del-has-result"],
    ),
    sentence(
        DELETING,
        Plain,
        Runtimes,
        "A plugin's error ends DEL, and is told to the caller.",
        &["chain.del-stops-at-error"],
    ),
    sentence(
        CHECKING,
        Plain,
        Runtimes,
        "CHECK runs the plugins in the order of ADD, with the final result as prevResult.",
        &["chain.check-in-order", "chain.check-has-result"],
    ),
    sentence(
        CHECKING,
        Must,
        Runtimes,
        "The parameters are those of ADD.",
        &["call.container-id", "call.netns", "call.ifname"],
    ),
    sentence(CHECKING, Plain, Runtimes, "With disableCheck it is a success.", &["chain.check-disabled"]),
    sentence(CHECKING, Plain, Runtimes, "A plugin's error is told to the caller.", &["chain.check-fails"]),
    sentence(
        COLLECTING,
        Plain,
        Runtimes,
        "GC calls each plugin, without parameters of an attachment.",
        &["chain.gc-names-valid-attachments"],
    ),
    sentence(
        COLLECTING,
        Plain,
        Runtimes,
        "A plugin's error does not end GC; all errors are told to the caller.",
        &["chain.gc-goes-on-after-error"],
    ),
    sentence(
        DERIVING,
        Must,
        Runtimes,
        "cniVersion is the version that the runtime selected, name the network's.",
        &["derive.name-and-version", "config.newest-version"],
    ),
    sentence(
        DERIVING,
        Must,
        Runtimes,
        "runtimeConfig has what the plugin object enables and the runtime has.",
        &["derive.runtime-config"],
    ),
    sentence(
        DERIVING,
        Must,
        Runtimes,
        "prevResult is the result of the plugin before, by what that means for the operation.",
        &[
            "derive.result-of-the-one-before",
            "derive.no-first-result",
            "chain.del-has-result",
            "chain.check-has-result",
        ],
    ),
    sentence(DERIVING, Must, Runtimes, "capabilities is not passed on.", &["derive.capabilities-removed"]),
    sentence(
        DERIVING,
        Plain,
        Runtimes,
        "With GC there is cni.dev/valid-attachments.",
        &["chain.gc-names-valid-attachments"],
    ),
    sentence(
        DERIVING,
        Should,
        Runtimes,
        "All other keys but those that start with cni.dev/ pass unaltered.",
        &["derive.keys-pass"],
    ),
];
