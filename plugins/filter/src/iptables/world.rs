//! Where this node has its iptables rules: in nf_tables, or in the legacy variant's own tables.

use std::fs;

use netops::OpError;
use netops::error::Result;
use netops::nft::{ExtensionKind, Family, Nft};

use super::table::{Table, TableName, World};
use super::{executable, parse};

/// Both families.
pub(crate) const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// What differs between iptables and ip6tables.
struct Names {
    save: &'static str,
    restore: &'static str,
    legacy_save: &'static str,
    legacy_restore: &'static str,
    tables: &'static str,
}

// thread-self, as a thread may be in another namespace than the process.
const IPV4: Names = Names {
    save: "iptables-save",
    restore: "iptables-restore",
    legacy_save: "iptables-legacy-save",
    legacy_restore: "iptables-legacy-restore",
    tables: "/proc/thread-self/net/ip_tables_names",
};
const IPV6: Names = Names {
    save: "ip6tables-save",
    restore: "ip6tables-restore",
    legacy_save: "ip6tables-legacy-save",
    legacy_restore: "ip6tables-legacy-restore",
    tables: "/proc/thread-self/net/ip6_tables_names",
};

fn names(family: Family) -> &'static Names {
    if family == Family::Ip6 { &IPV6 } else { &IPV4 }
}

/// The table that new rules go to; `None` if neither the kernel nor a program can have them.
///
/// Legacy, if the node's `iptables` is that variant and has rules there, or if the kernel has no extensions of iptables
/// for nf_tables.
///
/// # Errors
/// What the kernel or a program refused.
pub(crate) fn for_new_rules<'a>(
    nft: &'a mut Nft,
    search_path: &str,
    family: Family,
    name: TableName,
) -> Result<Option<Table<'a>>> {
    let programs = || {
        let Names { save, restore, .. } = names(family);
        Some((executable::find(search_path, &[save])?, executable::find(search_path, &[restore])?))
    };
    if !loaded(family).is_empty()
        && let Some((save, restore)) = programs()
    {
        let all = executable::save_all(&save)?;
        if is_legacy(&all) && has_rules(&all) {
            tracing::debug!(%family, ?save, "legacy iptables has rules: its programs are run");
            let text = parse::table(&all, name.as_str()).to_owned();
            return Ok(Some(Table::new(name, family, World::Program { save, restore, text })));
        }
    }
    if has_extensions(nft, family)? {
        tracing::debug!(%family, "iptables rules over netlink");
        return Ok(Some(Table::new(name, family, World::Netlink(nft))));
    }
    let Some((save, restore)) = programs() else {
        tracing::debug!(%family, "no iptables rules: neither the kernel nor a program has them");
        return Ok(None);
    };
    tracing::debug!(%family, ?save, "the kernel has no iptables extensions for nf_tables: iptables is run");
    let text = executable::save(&save, name.as_str())?;
    Ok(Some(Table::new(name, family, World::Program { save, restore, text })))
}

/// The table as nf_tables has it, whether or not new rules go there.
pub(crate) fn in_nftables(nft: &mut Nft, family: Family, name: TableName) -> Table<'_> {
    Table::new(name, family, World::Netlink(nft))
}

/// The table as the legacy variant has it; `None` if it is not in use there, or can't be read.
///
/// # Errors
/// What its program says.
pub(crate) fn in_legacy(search_path: &str, family: Family, name: TableName) -> Result<Option<Table<'static>>> {
    if !loaded(family).lines().any(|table| table == name.as_str()) {
        return Ok(None);
    }
    let Names { save, restore, legacy_save, legacy_restore, .. } = names(family);
    let pairs = [(*legacy_save, *legacy_restore), (*save, *restore)];
    for (save, restore) in pairs {
        let found = (executable::find(search_path, &[save]), executable::find(search_path, &[restore]));
        let (Some(save), Some(restore)) = found else { continue };
        let text = executable::save(&save, name.as_str())?;
        if is_legacy(&text) {
            return Ok(Some(Table::new(name, family, World::Program { save, restore, text })));
        }
    }
    tracing::warn!(%family, "legacy iptables tables are in use, but {legacy_save} was not found: they stay as they are");
    Ok(None)
}

/// The tables that the legacy variant has been used for, a line each; without its modules there is no such file.
fn loaded(family: Family) -> String {
    fs::read_to_string(names(family).tables).unwrap_or_default()
}

/// iptables says its variant in the first line, but for versions from before there were two.
fn is_legacy(text: &str) -> bool {
    !text.lines().next().unwrap_or_default().contains("(nf_tables)")
}

fn has_rules(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("-A "))
}

/// Whether nf_tables rules can have what those of iptables consist of.
fn has_extensions(nft: &mut Nft, family: Family) -> Result<bool> {
    Ok(nft.has_extension(family, ExtensionKind::Match, "comment", 0)?
        && nft.has_extension(family, ExtensionKind::Target, "MASQUERADE", 0)?)
}

/// Why [`for_new_rules`] found no table.
pub(crate) fn none(family: Family) -> OpError {
    let Names { restore, .. } = names(family);
    let sentence = format!(
        "the kernel has no iptables extensions for nf_tables, and {restore} was found neither in PATH nor in the \
         system's folders; load nft_compat and xt_MASQUERADE, install iptables, or set ipMasqBackend to nftables"
    );
    OpError::state("use", format!("iptables ({family})"), sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        assert_eq!(
            none(Family::Ip).to_string(),
            "cannot use iptables (ip): the kernel has no iptables extensions for nf_tables, and iptables-restore was found \
             neither in PATH nor in the system's folders; load nft_compat and xt_MASQUERADE, install iptables, or set \
             ipMasqBackend to nftables"
        );
    }

    #[test]
    fn the_variant_is_in_the_first_line() {
        assert!(is_legacy("# Generated by iptables-save v1.8.9 on Sun Nov 22 10:44:45 2026\n*nat\n"));
        assert!(is_legacy("# Generated by iptables-save v1.6.1 on Sun Nov 22 10:44:45 2026\n*nat\n"));
        assert!(!is_legacy("# Generated by iptables-save v1.8.9 (nf_tables) on Sun Nov 22 10:44:45 2026\n*nat\n"));
    }
}
