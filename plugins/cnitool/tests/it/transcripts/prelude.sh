# Goes before each command of a transcript: D is the folder of the section, and CNITOOL the executable.
set -e
NETNS=/proc/self/ns/net
cnitool() { "$CNITOOL" --cache-dir "$D/cache" "$@"; }
add() { cnitool add "$@" >/dev/null; }
# Shows the calls of plugins since the last look.
log() { cat log; : >log; }
# Makes a plugin of a script; $dir is its folder.
plugin() { printf '#!/bin/sh\ndir=${0%%/*}\n%s\n' "$2" >"bin/$1"; chmod 755 "bin/$1"; }
network() { echo "{\"cniVersion\":\"${3-1.1.0}\",\"name\":\"$1\",\"plugins\":[$2]}" >"net.d/$1.conflist"; }
# Makes, in the place of `cni-plugins`, a script that is two plugins and noop, distinguished by name, of a release.
release() {
    mkdir -p from
    cat >from/cni-plugins <<end
#!/bin/sh
# $SUITE_MARK, release $1
case "\${0##*/} \${CNI_COMMAND-}" in
*' ') printf 'bridge\nhost-local\nnoop\n';;
'cni-plugins '*) exit 1;;
*' VERSION') echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}';;
esac
end
    chmod 755 from/cni-plugins
}
change() { sed -i "$1" from/cni-plugins; }
install() { cnitool install --bin-dir "$D/target" --from "$D/from/cni-plugins" "$@"; }
theirs() { mkdir -p "${1%/*}" && echo theirs >"$1" && chmod 755 "$1"; }
# Attaches c1 in a namespace that exists, c2 in one that is gone, and c3 at a file that is none.
attached() {
    echo 'no namespace' >file
    add net $NETNS --container-id c1; add net /run/netns/gone --container-id c2; add net "$D/file" --container-id c3
    : >log
}
platform() { HOME=/home cnitool install --from "$D/from/cni-plugins" --root "$D/node" --platform "$@"; }
# Makes network pods of two ranges; two addresses are a container's, one an operator's.
pool() {
    network pods "{\"type\":\"bridge\",\"ipam\":{\"type\":\"host-local\",\"dataDir\":\"$D/data\",
        \"ranges\":[[{\"subnet\":\"10.1.0.0/28\"}],[{\"subnet\":\"fd00::/64\",\"rangeEnd\":\"fd00::10\"}]]}}"
    mkdir -p data/pods
    hold 10.1.0.2 'c1\r\neth0'; hold fd00::2 'c1\r\neth0'; hold 10.1.0.9 'printer, "old"'
    touch -d @1700000000 data/pods/*
}
hold() { printf "$2" >"data/pods/$1"; }
# Shows the findings of `doctor` of a kind.
found() { cnitool doctor | sed -n "/\[$1\]/,/^\( *help\|\$\)/p"; }
# Writes a manifest of release $1 for bridge, host-local and vlan.
manifest() {
    release "$1"
    sum=$(sha256sum from/cni-plugins)
    sum=${sum%% *}
    echo "{\"release\": \"1.9.1+rust.$1.0.0\", \"platform\": \"linux/amd64\", \"optional\": {\"cnitool\": \"$sum\"},
        \"files\": {\"bridge\": \"$sum\", \"host-local\": \"$sum\", \"vlan\": \"$sum\"}}" >"$1.json"
}
# Copies the executable to its names.
place() { mkdir -p target; for name; do cp from/cni-plugins "target/$name"; done; }
verify() {
    for release; do
        shift
        set -- "$@" --manifest "$D/$release.json"
    done
    cnitool verify "$D/target" "$@"
}
TRACE=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
record() {
    printf '{"CNI_BY":"%s","CNI_BEGIN_US":"1700000000123456","CNI_VERB":"%s","CNI_NETWORK":"pods","CNI_CONTAINERID":"%s",' "$1" "$2" "$3"
    printf '"CNI_IFNAME":"eth0","CNI_DURATION_US":"4200",%s}\n' "$4"
}
# Writes a log of an ADD and a DEL by a plugin, and of a failed ADD by a runtime, with lines between them that are none.
calls() {
    {
        record plugin ADD c1 '"CNI_PLUGIN":"bridge","CNI_ADDRESSES":"10.1.0.5/24 fd00::5/64","TRACEPARENT":"'$TRACE'",
            "CNI_STEPS":"100 read and check\n3900 create veth\n200 add route"' | tr -d '\n'
        printf '\nno record\n{"CNI_BY":"plugin"}\n\0\n%0200000d\n' 0
        record runtime ADD c2 '"CNI_ERROR_CODE":"105","CNI_ERROR":"none free\u001b[2J\nat all","CNI_STEPS":"5000 ADD of bridge"'
        record plugin DEL c1 '"CNI_PLUGIN":"bridge","CNI_STEPS":"50 read and check"'
        printf '{"CNI_BY":"plugin","CNI_VERB":"cut off'
    } >calls.log
}
called() { cnitool log --from "$D/calls.log" "$@"; }
keyed() { echo "{\"cniVersion\":\"1.1.0\",\"name\":\"net\",\"log\":\"$1\",\"plugins\":[{\"type\":\"good\"}]}" >net.d/net.conflist; }
# Makes the files of a node below a folder, each by its path and text.
node() {
    rm -rf node; release 1
    while [ "${1-}" ]; do mkdir -p "node/${1%/*}"; printf "$2\n" >"node/$1"; shift 2; done
}
# Shows which folders a platform has by its settings.
says() { platform "$1" 2>&1 | grep -e ' says$' -e 'not TOML' || echo none; }
# Shows the words with which bash completes the last one.
complete() {
    PATH=${CNITOOL%/*}:$PATH bash --norc -c '
        source <(cnitool generate completions bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
        _clap_complete_cnitool cnitool "${COMP_WORDS[COMP_CWORD]}"
        echo "$*: ${COMPREPLY[*]}"' bash cnitool "$@"
}
# Makes network lan with addresses of a plugin, and a script in the place of plugin cluster.
lan() {
    network lan "{\"type\":\"tuning\"},{\"type\":\"macvlan\",\"ipam\":{\"type\":\"$1\",\"subnet\":\"10.1.0.0/28\"${2+,$2}}}"
    plugin cluster 'echo "$@"; tr -d " \n"; echo; exit 3'
}
