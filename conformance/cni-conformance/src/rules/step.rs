//! The steps of a case as the files of rules have them.

use super::attachment_damage::Harm;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use testns::Remains;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// A container comes and goes, so that what a network has once is there.
    Network,
    ComeAndGo,
    /// The case goes on with the container of this ID, else with a new one.
    Pod(Option<String>),
    Attach,
    /// ADD of a container that came and went: where that fails, it is another rule's.
    AttachAgain,
    Detach,
    /// DEL with less than a runtime has.
    DetachWith(DetachWith),
    Checks,
    /// The same, before something else is asked: where it fails, it is another rule's.
    HasToCheck,
    /// CHECK has to fail for the harm that was done.
    CheckObjects,
    /// The attachment is valid for `gc`, and the case goes on with a new container.
    Keep,
    /// CHECK of what was kept.
    CheckKept,
    /// GC with the attachments that were kept.
    Gc,
    Harm(Harm),
    /// The plugin's daemons are killed; skips if it has none.
    EndDaemons,
    /// The container's namespace is gone, say.
    Leave(Left),
    /// The pool has so many addresses; skips what has no pool.
    Pool(u32),
    /// The kit's own IPAM plugin is the delegate from now on; skips what does not delegate.
    KitDelegate,
    /// The same; skips what delegates more than addresses.
    KitIpam,
    /// Keys of the object that names the delegate, from now on.
    Delegate(Map<String, Value>),
    /// The kit's delegate fails at a verb with a code from now on.
    DelegateFails(BTreeMap<String, u64>),
    /// The kit's delegate prints this at a verb from now on, and says that it succeeded.
    DelegatePrints(BTreeMap<String, String>),
    /// The kit's delegate was called with the verb.
    DelegateCalled(String),
    /// Each call of the kit's delegate had these values of keys of its config.
    DelegateHad(Map<String, Value>),
    /// The kit's delegate had the variables of the latest call.
    DelegateEnvironment,
    /// The kit's delegate had the config of the latest call.
    DelegateConfig,
    /// The kit's delegate holds no address.
    Released,
    /// Skips plugins that delegate.
    NoDelegate,
    /// Skips plugins that need not know of a capability.
    Capability(String),
    /// Skips plugins that the kit can ask for no address.
    HasRange,
    /// Skips what makes no interface.
    Interface,
    /// Keys of the config from now on: see [`CallStep::set`].
    Config(Map<String, Value>),
    /// Keys that the config does not have from now on.
    Without(Vec<String>),
    /// prevResult has this value of a key of the interface that ADD made, if it has the key.
    PrevInterface(Map<String, Value>),
    /// So many lines that start so have come since the node was remembered.
    Came(String, usize),
    /// The rule whose finding it is if a later step fails.
    Basis(Option<String>),
    /// Node and containers are remembered as they are now.
    Remember,
    /// Nothing has changed since, in these words.
    Unchanged(String),
    /// Nothing has come since.
    NothingLeft,
    /// No link has come since.
    NoLinkLeft,
    /// Nothing has gone since, in these words.
    NothingLost(String),
    /// The result has these addresses.
    Addresses(Vec<String>),
    /// The container's interface has this hardware address.
    Mac(String),
    /// The latest result of ADD or VERSION has these values, by their JSON pointers; what is missing is null.
    Result(BTreeMap<String, Value>),
    /// The result is right in the places that start so.
    NoFaultsIn(Vec<String>),
    /// The result has the form of 0.1.0.
    OldestForm,
    /// The result has no keys that its version does not know.
    KnownKeys,
    #[serde(rename = "ADD")]
    CallAdd(CallStep),
    #[serde(rename = "DEL")]
    CallDel(CallStep),
    #[serde(rename = "CHECK")]
    CallCheck(CallStep),
    #[serde(rename = "GC")]
    CallGc(CallStep),
    #[serde(rename = "STATUS")]
    CallStatus(CallStep),
    #[serde(rename = "VERSION")]
    CallVersion(CallStep),
}

/// The remains of a container, as [`Remains`] has them.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Left {
    Gone,
    PlainFile,
    EmptyPath,
}

impl From<Left> for Remains {
    fn from(left: Left) -> Self {
        match left {
            Left::Gone => Self::Gone,
            Left::PlainFile => Self::PlainFile,
            Left::EmptyPath => Self::EmptyPath,
        }
    }
}

/// DEL with less than a runtime has.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct DetachWith {
    /// The prevResult in place of that of ADD.
    pub(super) result: Option<Given>,
    /// Variables that are left out.
    #[serde(default)]
    pub(super) without: Vec<String>,
}

/// A prevResult in place of that of ADD.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Given {
    None,
    /// An object without keys.
    Empty,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct CallStep {
    /// Keys of the config, of the first level or by JSON pointer. Missing objects on the way are made, but for `ipam`: a plugin
    /// without it does not delegate.
    #[serde(default)]
    pub(super) set: Map<String, Value>,
    /// Keys that the config does not have.
    #[serde(default)]
    pub(super) remove: Vec<String>,
    /// The whole of stdin, in which `{config}` is the config, `{members}` the same without its braces, `{half}` the first half of it,
    /// and `{version}` its version.
    pub(super) stdin: Option<String>,
    #[serde(default)]
    pub(super) variables: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) without: Vec<String>,
    /// `CNI_NETNS` in place of the container's, in which `{node}` is that of the plugin itself.
    pub(super) netns: Option<String>,
    /// `CNI_IFNAME` in place of the container's.
    pub(super) ifname: Option<String>,
    /// The outcome that the rule asks for.
    #[serde(default)]
    pub(super) expect: Expect,
    /// The reason for which a call that succeeds shows nothing.
    pub(super) skip_success: Option<String>,
    /// The rule that says that the call fails, where it is not the one that is tried.
    pub(super) refused_by: Option<String>,
    #[serde(default)]
    pub(super) code: Vec<u64>,
    #[serde(default)]
    pub(super) msg: Vec<String>,
    #[serde(default)]
    pub(super) details: Vec<String>,
    /// Words of the error, in whichever key.
    #[serde(default)]
    pub(super) error: Vec<String>,
    /// Variables, one of which the message names if the code is 4.
    #[serde(default)]
    pub(super) names: Vec<String>,
}

/// The outcome that is asked of a call.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Expect {
    #[default]
    Success,
    /// Success, and nothing on stdout.
    Nothing,
    Versions,
    /// A failure, and nothing has changed.
    Refused,
    Refusal,
    Failure,
    /// Success with nothing on stdout, or an error object.
    Answer,
    Anything,
    /// If it fails, a status that says so.
    Status,
    /// If it fails, an error object.
    Object,
    /// If it fails, a code that there is, or one of its own.
    KnownCode,
}
