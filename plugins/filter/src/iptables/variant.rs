//! Decides which variant this node's iptables rules belong to: nf_tables, or the legacy variant's own tables.

use std::sync::Once;

use netops::error::Result;
use netops::nft::{ExtensionKind, Family, Nft, Wanted};
use netops::{OpError, file, netns};

use super::executable::{self, Program, Variant};
use super::parse;
use super::table::{Table, TableName, World};

pub(crate) const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// The differences between iptables and ip6tables.
struct Names {
    save: &'static str,
    restore: &'static str,
    legacy_save: &'static str,
    legacy_restore: &'static str,
    /// Of the main thread, and of another one.
    tables: [&'static str; 2],
}

const IPV4: Names = Names {
    save: "iptables-save",
    restore: "iptables-restore",
    legacy_save: "iptables-legacy-save",
    legacy_restore: "iptables-legacy-restore",
    tables: ["/proc/self/net/ip_tables_names", "/proc/thread-self/net/ip_tables_names"],
};
const IPV6: Names = Names {
    save: "ip6tables-save",
    restore: "ip6tables-restore",
    legacy_save: "ip6tables-legacy-save",
    legacy_restore: "ip6tables-legacy-restore",
    tables: ["/proc/self/net/ip6_tables_names", "/proc/thread-self/net/ip6_tables_names"],
};

fn names(family: Family) -> &'static Names {
    if family == Family::Ip6 { &IPV6 } else { &IPV4 }
}

/// Where the rules of a table go. Finding out reads the table of a program; a place is found once, and then is the table.
#[derive(Debug)]
pub struct TableHome(Where);

#[derive(Debug)]
enum Where {
    Netlink(Family, TableName),
    Program(Table<'static>),
}

impl TableHome {
    /// The table there.
    pub(crate) fn table(self, nft: &mut Nft) -> Table<'_> {
        match self.0 {
            Where::Netlink(family, name) => in_nftables(nft, family, name),
            Where::Program(table) => table,
        }
    }
}

/// The place of the table for new rules; `None` if neither the kernel nor a program can have them.
///
/// Legacy, if the node's `iptables` is the legacy variant by name, or if the kernel has no iptables extensions for
/// nf_tables. If the name does not show the variant, it is legacy if its output says so and legacy rules exist.
pub(crate) fn for_new_rules(
    nft: &mut Nft,
    asked: &mut Asked,
    search_path: &str,
    family: Family,
    name: TableName,
) -> Result<Option<TableHome>> {
    let variant = asked.variant(search_path, family);
    let legacy = match variant {
        Some(Variant::Nft) => None,
        Some(Variant::Legacy) => legacy_by_name(search_path, family, name)?,
        None => legacy_by_its_rules(search_path, family, name)?,
    };
    if let Some(legacy) = legacy {
        return Ok(Some(TableHome(Where::Program(legacy))));
    }
    if has_extensions(nft, asked, family, name)? {
        tracing::debug!(%family, "iptables rules over netlink");
        return Ok(Some(TableHome(Where::Netlink(family, name))));
    }
    // Programs of the nf_tables variant need the same extensions.
    let legacy = match variant {
        Some(Variant::Nft) => None,
        Some(Variant::Legacy) | None => by_program(search_path, family, name)?.filter(Table::is_of_legacy),
    };
    if legacy.is_none() {
        tracing::debug!(%family, "the kernel has no iptables extensions for nf_tables, and iptables is not the legacy variant");
    }
    Ok(legacy.map(|table| TableHome(Where::Program(table))))
}

pub(crate) fn place_of_programs(search_path: &str, family: Family, name: TableName) -> Result<Option<TableHome>> {
    Ok(by_program(search_path, family, name)?.map(|table| TableHome(Where::Program(table))))
}

/// Whether new rules go to nf_tables if the kernel has the extensions: iptables is not the legacy variant, and no program need be run to
/// know that.
pub(crate) fn is_nft(search_path: &str, family: Family) -> bool {
    match executable::variant(search_path, names(family).save) {
        Some(variant) => variant == Variant::Nft,
        None => loaded(family).is_empty(),
    }
}

/// The table as the node's programs see it, whichever variant they are; `None` if none are installed.
pub(crate) fn by_program(search_path: &str, family: Family, name: TableName) -> Result<Option<Table<'static>>> {
    let Some((save, restore)) = programs(search_path, family) else { return Ok(None) };
    let text = executable::save(&save, name.as_str())?;
    Ok(Some(Table::new(name, family, World::Program { save, restore, text })))
}

fn programs(search_path: &str, family: Family) -> Option<(Program, Program)> {
    let Names { save, restore, .. } = names(family);
    Some((executable::find(search_path, &[save])?, executable::find(search_path, &[restore])?))
}

/// The legacy table of a node whose `iptables` is the legacy variant by name, with rules or without. `None` if its
/// programs cannot have that table, for example because the kernel lacks it.
fn legacy_by_name(search_path: &str, family: Family, name: TableName) -> Result<Option<Table<'static>>> {
    let Some((save, restore)) = programs(search_path, family) else { return Ok(None) };
    match executable::save(&save, name.as_str()) {
        Ok(text) => {
            tracing::debug!(%family, ?save, "iptables is the legacy variant: its programs are run");
            Ok(Some(Table::new(name, family, World::Program { save, restore, text })))
        }
        // If the kernel had that table, the program's first request would have loaded it.
        Err(error) if !is_loaded(family, name) => {
            tracing::debug!(%family, ?save, %error, "iptables is the legacy variant, which does not work here");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The legacy table, if the legacy variant has rules in any table and `iptables` prints them.
fn legacy_by_its_rules(search_path: &str, family: Family, name: TableName) -> Result<Option<Table<'static>>> {
    if loaded(family).is_empty() {
        return Ok(None);
    }
    let Some((save, restore)) = programs(search_path, family) else { return Ok(None) };
    let all = executable::save_all(&save)?;
    if !is_legacy(&all) || !has_rules(&all) {
        return Ok(None);
    }
    tracing::debug!(%family, ?save, "legacy iptables has rules: its programs are run");
    let text = parse::table(&all, name.as_str()).to_owned();
    Ok(Some(Table::new(name, family, World::Program { save, restore, text })))
}

/// The table in nf_tables, whether or not new rules go there.
pub(crate) fn in_nftables(nft: &mut Nft, family: Family, name: TableName) -> Table<'_> {
    Table::new(name, family, World::Netlink(nft))
}

/// The table in the legacy variant; `None` if it is not in use there or cannot be read. `search_path` is `PATH`, for its
/// programs, which are run only if the table is in use.
///
/// # Errors
/// The error of its program.
pub fn in_legacy(search_path: &str, family: Family, name: TableName) -> Result<Option<Table<'static>>> {
    if !is_loaded(family, name) {
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

/// The variants of iptables that have rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Variants {
    /// nf_tables: tables `filter`, `nat`, `mangle` or `raw` of family `ip` or `ip6`.
    pub nft: bool,
    /// The legacy tables.
    pub legacy: bool,
}

/// Looks for rules in both variants. `search_path` is `PATH`, for the program that reads the legacy tables.
///
/// # Errors
/// The refusal of the kernel; the error of the program.
pub fn variants_with_rules(search_path: &str) -> Result<Variants> {
    let mut found = Variants::default();
    let mut nft = Nft::open("the host")?;
    for family in FAMILIES {
        for table in ["filter", "nat", "mangle", "raw"].map(|name| netops::nft::Table::new(family, name)) {
            // A chain that is used has a rule, or another one's rule leads to it.
            found.nft |= nft.list_chains(&table)?.iter().any(|chain| chain.uses > 0);
        }
        let Names { legacy_save, .. } = names(family);
        if !loaded(family).is_empty()
            && let Some(save) = executable::find(search_path, &[legacy_save])
        {
            found.legacy |= has_rules(&executable::save_all(&save)?);
        }
    }
    Ok(found)
}

/// The names of the tables that the legacy variant has used, one per line. Without its modules the file does not exist.
fn loaded(family: Family) -> String {
    let [main, other] = names(family).tables;
    file::read_small(netns::by_thread(main, other)).unwrap_or_default()
}

/// The legacy tables in use that this crate does not read, in words.
#[must_use]
pub fn unread_tables() -> Vec<String> {
    let arp = ["/proc/self/net/arp_tables_names", "/proc/thread-self/net/arp_tables_names"];
    let of = |program: &'static str, names: String| {
        let unread = move |name: &str| {
            (program == "arptables" || name != TableName::Nat.as_str())
                .then(|| format!("table {name} of legacy {program}"))
        };
        names.lines().filter_map(unread).collect::<Vec<_>>()
    };
    let arp = file::read_small(netns::by_thread(arp[0], arp[1])).unwrap_or_default();
    [of("iptables", loaded(Family::Ip)), of("ip6tables", loaded(Family::Ip6)), of("arptables", arp)].concat()
}

fn is_loaded(family: Family, name: TableName) -> bool {
    loaded(family).lines().any(|table| table == name.as_str())
}

/// Says once that rules go into tables of nf_tables' own.
pub(crate) fn note_native() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            "the kernel has no extensions of iptables for nf_tables (nft_compat, xt_comment, xt_conntrack, xt_MASQUERADE), and \
             iptables is not the legacy variant: rules are made in tables of nf_tables alone"
        );
    });
}

/// Whether the output is that of the legacy variant. iptables names its variant in the first line, except versions from
/// before there were two.
pub(super) fn is_legacy(text: &str) -> bool {
    !text.lines().next().unwrap_or_default().contains("(nf_tables)")
}

fn has_rules(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("-A "))
}

/// Whether the kernel has the iptables extensions that our rules need, for nf_tables.
fn has_extensions(nft: &mut Nft, asked: &mut Asked, family: Family, name: TableName) -> Result<bool> {
    if let Some((.., answer)) = asked.answers.iter().find(|(of, table, _)| (*of, *table) == (family, name)) {
        return Ok(*answer);
    }
    let answer = nft.has_extensions(family, extensions(name))?;
    asked.answers.push((family, name, answer));
    Ok(answer)
}

/// The extensions that the rules of a table need.
pub(super) fn extensions(name: TableName) -> [Wanted<'static>; 2] {
    let second = match name {
        TableName::Filter => (ExtensionKind::Match, "conntrack", 3),
        TableName::Nat => (ExtensionKind::Target, "MASQUERADE", 0),
    };
    [(ExtensionKind::Match, "comment", 0), second]
}

/// What decides between the variants: each answer is asked for once.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Whether the kernel has the extensions that the rules of a table need.
    answers: Vec<(Family, TableName, bool)>,
    variants: Vec<(Family, Option<Variant>)>,
}

impl Asked {
    /// The variant of a family's programs, as [`executable::variant`].
    fn variant(&mut self, search_path: &str, family: Family) -> Option<Variant> {
        if let Some((_, variant)) = self.variants.iter().find(|(of, _)| *of == family) {
            return *variant;
        }
        let variant = executable::variant(search_path, names(family).save);
        self.variants.push((family, variant));
        variant
    }
}

/// The error if [`for_new_rules`] found no table.
pub(crate) fn none(family: Family) -> OpError {
    let Names { restore, .. } = names(family);
    let sentence = format!(
        "the kernel has no iptables extensions for nf_tables, and no {restore} of the legacy variant was found in PATH or in the \
         system's folders; load nft_compat and xt_MASQUERADE, install iptables, or set ipMasqBackend to nftables"
    );
    OpError::state("use", format!("iptables ({family})"), sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_kernel_feature_is_reported_with_its_modules() {
        assert_eq!(
            none(Family::Ip).to_string(),
            "cannot use iptables (ip): the kernel has no iptables extensions for nf_tables, and no iptables-restore of the \
             legacy variant was found in PATH or in the system's folders; load nft_compat and xt_MASQUERADE, install iptables, or set \
             ipMasqBackend to nftables"
        );
    }

    #[test]
    fn the_first_line_of_output_names_the_variant() {
        assert!(is_legacy("# Generated by iptables-save v1.8.9 on Sun Nov 22 10:44:45 2026\n*nat\n"));
        assert!(is_legacy("# Generated by iptables-save v1.6.1 on Sun Nov 22 10:44:45 2026\n*nat\n"));
        assert!(!is_legacy("# Generated by iptables-save v1.8.9 (nf_tables) on Sun Nov 22 10:44:45 2026\n*nat\n"));
    }
}
