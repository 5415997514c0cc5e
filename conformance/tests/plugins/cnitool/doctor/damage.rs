//! Each kind of damage, and what the doctor has to say of it.

/// The functions of the scripts: a reservation that is an hour old, a container that is gone without DEL, and a plugin behind the
/// network's.
pub(super) const FUNCTIONS: &str = r#"
cnitool() { $RUNTIME $CNI_PATH/cnitool "$@"; }
PATH=$CNI_PATH:$PATH conf=/etc/cni/net.d store=/var/lib/cni/networks/office results=/var/lib/cni/results
old() { printf "$2" > $store/$1; touch -d '1 hour ago' $store/$1; }
lose() { ip netns add gone; cnitool add office /run/netns/gone --container-id gone > /dev/null
    touch -d '1 hour ago' $store/A.3; ip netns del gone; }
chain() { sed -i 's/]}$/,{"type":"'$1'"}]}/' $conf/10-office.conflist; }
"#;

/// The findings that `--fix` mends.
pub(super) const LEFT_OVER: &str = include_str!("tables/left_over.txt");

/// What an operator has to decide on.
pub(super) const OTHERS: &str = include_str!("tables/left_to_an_operator.txt");
