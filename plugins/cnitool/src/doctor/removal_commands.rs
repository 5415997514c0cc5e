//! The command that removes one attachment, and nothing of any other; and why that is not done unasked.

use libcni::inventory::{Life, OnNode};
use libcni::{AttachmentId, NetworkConf, Runtime};

use crate::doctor::network_files::Makes;
use crate::shell_words::word;

/// Stands for a namespace that has no path any more.
const NOWHERE: &str = "/run/netns/gone";

/// Commands shown at most.
pub(crate) const COMMANDS_MAX: usize = 5;

/// `cnitool del` of an attachment, as a line for a shell. `netns` is the path of its namespace; empty: none is known.
#[must_use]
pub fn removal(network: &str, id: &AttachmentId, netns: &str) -> String {
    let AttachmentId { container_id, ifname } = id;
    let netns = if netns.is_empty() { NOWHERE } else { netns };
    let (netns, ifname) = (word(netns), word(ifname.as_str()));
    format!("cnitool del {network} {netns} --container-id {container_id} --ifname {ifname}")
}

/// The commands that remove the masquerade of a container that is gone, if nothing else of it is left, and a plugin of the network is
/// of another make: the reference's DEL finds the rules by the addresses in the namespace, and it has no GC.
pub(crate) fn removal_by_hand(
    runtime: &Runtime,
    search_path: &str,
    network: &NetworkConf,
    found: &OnNode,
) -> Option<String> {
    let is_masquerade = |object: &String| object.starts_with("iptables masquerade");
    let id = found.id.as_ref().filter(|_| found.life == Life::Gone && found.objects.iter().all(is_masquerade))?;
    if found.objects.is_empty() || Makes::are_own(runtime, network) {
        return None;
    }
    let commands = cni_filter::masquerade_removal(&network.name, id.container_id.as_str(), search_path).ok()?;
    (!commands.is_empty()).then(|| commands.join("; "))
}

/// Why it is unknown whether the namespace of an attachment exists, at whose path is an empty file.
#[must_use]
pub fn unmounted(netns: &str) -> String {
    format!("{netns} is an empty file, so its namespace is gone, or is mounted in another mount namespace")
}

/// The commands of a sentence, one after the other; of many the first ones.
pub(crate) fn listed(commands: &[String]) -> String {
    let shown = commands.iter().take(COMMANDS_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    match commands.len().checked_sub(COMMANDS_MAX) {
        None | Some(0) => shown,
        Some(more) => format!("{shown}; likewise for {more} more"),
    }
}

/// A remedy whose commands of this program have these options, as far as they do not name one of them.
pub(crate) fn command_lines(remedy: &str, options: &[String]) -> String {
    const VERBS: [&str; 7] = ["del", "doctor", "gc", "ipam", "repair", "status", "validate"];
    let mut parts = remedy.split("cnitool ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += "cnitool ";
        let command = part.split(';').next().unwrap_or_default();
        if part.split([' ', ';']).next().is_some_and(|verb| VERBS.contains(&verb)) {
            let is_new = |option: &&String| {
                let name = option.split(' ').next().unwrap_or_default();
                command.split(' ').all(|word| word != name)
            };
            options.iter().filter(is_new).for_each(|option| text.extend([option, " "]));
        }
        text += part;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use cni_spec::{ContainerId, IfName};

    fn id(ifname: &str) -> AttachmentId {
        AttachmentId { container_id: ContainerId::parse("c1").unwrap(), ifname: IfName::parse(ifname).unwrap() }
    }

    #[test]
    fn a_shell_takes_the_command_as_it_is_shown() {
        let command = removal("net", &id("eth0"), "");
        assert_eq!(command, "cnitool del net /run/netns/gone --container-id c1 --ifname eth0");
        let command = removal("net", &id("e;x"), "/run/it's here");
        assert_eq!(command, r"cnitool del net '/run/it'\''s here' --container-id c1 --ifname 'e;x'");
    }

    #[test]
    fn commands_of_this_program_get_the_options_that_they_do_not_have() {
        let options = ["--conf-dir /x".to_owned(), "--cache-dir '/a b'".to_owned()];
        let with = |remedy: &str| command_lines(remedy, &options);
        assert_eq!(
            with("cnitool gc net; cnitool ipam list net"),
            "cnitool --conf-dir /x --cache-dir '/a b' gc net; cnitool --conf-dir /x --cache-dir '/a b' ipam list net"
        );
        assert_eq!(
            with("cnitool doctor --conf-dir /srv/k3s; ls"),
            "cnitool --cache-dir '/a b' doctor --conf-dir /srv/k3s; ls"
        );
        for untouched in ["ip link delete cni0", "Leave them; cnitool install with --replace-foreign puts them."] {
            assert_eq!(with(untouched), untouched);
        }
    }

    #[test]
    fn of_many_commands_the_first_are_shown() {
        let commands: Vec<String> = (1..=7).map(|number| number.to_string()).collect();
        assert_eq!(listed(&commands), "1; 2; 3; 4; 5; likewise for 2 more");
        assert_eq!(listed(&commands[..5]), "1; 2; 3; 4; 5");
    }
}
