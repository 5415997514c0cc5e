set -e
mount -t tmpfs tmpfs /dev/shm
touch /dev/shm/cnitool /dev/shm/cni-plugins
mount --bind "$1" /dev/shm/cnitool; mount --bind "$2" /dev/shm/cni-plugins
for dir in /run /etc /usr/local /usr/libexec /usr/share /var/lib /var/log /srv /mnt; do mount -t tmpfs tmpfs $dir; done
if [ -e "$3" ]; then touch /dev/shm/cluster; mount --bind "$3" /dev/shm/cluster; fi
mount --bind "$4" /opt
shift 4
mkdir -p /run/netns /etc/cni/net.d /mnt/path /usr/local/share/man /usr/share/cni-plugins-rust /var/lib/prometheus/node-exporter
mkdir -m 700 -p /var/log/cni
shared='"ipam":{"type":"cluster","subnet":"10.9.0.0/24","store":{"path":"/srv/store"}'
echo file > /etc/cni/log
ln -s /dev/shm/cnitool /mnt/path/cnitool
PATH=/mnt/path:/usr/sbin:/usr/bin:/sbin:/bin
cnitool install --link hard --bin-dir /opt/cni/bin > /dev/null
cnitool install --link hard --bin-dir /usr/libexec/cni > /dev/null
echo '{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge","isGateway":true,"ipMasq":true,
  "ipam":{"type":"host-local","subnet":"10.1.0.0/16"}},{"type":"portmap","capabilities":{"portMappings":true}}]}' \
  > /etc/cni/net.d/10-pods.conflist
cd /srv
cp /etc/cni/net.d/10-pods.conflist new.conflist
files=$(cd /usr/libexec/cni; sha256sum * | sed 's/\([^ ]*\)  \(.*\)/"\2":"\1"/' | paste -sd ,)
echo "{\"release\":\"0.9.0\",\"files\":{$files}}" | tee manifest-linux-amd64-v0.9.0.json > /usr/share/cni-plugins-rust/manifest.json
namespace() { : > /run/netns/$1; unshare --net=/run/netns/$1 true; }
namespace c1
# Addresses of the loopback can be listened on.
echo '{"cniVersion":"1.1.0","name":"lo","type":"loopback"}' | CNI_COMMAND=ADD CNI_CONTAINERID=node CNI_IFNAME=lo \
  CNI_NETNS=/proc/self/ns/net CNI_NETNS_OVERRIDE=1 CNI_PATH=/opt/cni/bin /opt/cni/bin/loopback > /dev/null
free() { cnitool del pods c1; }
# What an example needs that others before it do not leave.
before() {
  case $1 in
    "cnitool check pods "*) free; cnitool add pods c1 > /dev/null ;;
    "cnitool plan "*) free ;;
    "cnitool add "*--cap-args*) free ;;
    "cnitool add "*) cnitool del pods c1 -i eth1 ;;
    "cnitool "*shop/web-0*) free; cnitool add pods c1 --args 'IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0' > /dev/null ;;
    # The namespace has ended, and the addresses were removed by hand.
    "cnitool del "*--forget) free; cnitool add pods c1 --container-id 4f5e6d7c > /dev/null; umount /run/netns/c1
      while grep -q veth /proc/net/dev; do :; done; rm -f /var/lib/cni/networks/pods/10.*
      nft flush ruleset 2> /dev/null || true; namespace c1 ;;
    "cnitool install "*k3s*) mkdir -p /var/lib/rancher/k3s/data/cni ;;
    # A network whose addresses another node has, too.
    "cnitool cluster "*) mkdir -p /srv/store; cp /dev/shm/cluster /opt/cni/bin/cluster
      echo '{"cniVersion":"1.1.0","name":"lan","type":"macvlan",'"$shared}}" | /opt/cni/bin/cluster init - > /dev/null
      echo '{"cniVersion":"1.1.0","name":"lan","type":"macvlan",'"$shared,\"dataDir\":\"/srv/node7\",\"node\":\"node7\"}}" |
        CNI_COMMAND=ADD CNI_CONTAINERID=far CNI_IFNAME=eth0 CNI_NETNS=/none CNI_PATH=/opt/cni/bin /opt/cni/bin/cluster > /dev/null || :
      # Nothing was heard of that node for long.
      sed -i 's/"heardAt": *[0-9]*/"heardAt":1700000000/' /srv/store/lan/nodes/node7/*
      echo '{"cniVersion":"1.1.0","name":"lan","plugins":[{"type":"macvlan",'"$shared,\"node\":\"node1\"}}]}" > /etc/cni/net.d/20-lan.conflist ;;
    "cnitool repair"*) free; cnitool add pods c1 > /dev/null ;;
    # By the package, whose files are in another folder than a runtime's.
    "cnitool verify") rm -r /opt/cni/bin; cp -r /usr/libexec/cni /opt/cni/bin ;;
  esac
}
for line in "$@"; do
  before "$line" 2> /dev/null
  status=0
  case $line in
    *--watch|*--listen*|*" -f "*)
      # Until a signal: after the first line.
      : > /mnt/out
      eval "exec $line" > /mnt/out 2> /mnt/err & pid=$!
      while [ ! -s /mnt/out ] && kill -0 $pid; do :; done
      kill -TERM $pid || :; wait $pid || status=$?
      [ $status != 143 ] || status=0 ;;
    *) ( eval "$line" ) > /mnt/out 2> /mnt/err < /dev/null || status=$? ;;
  esac
  # doctor: warnings, errors.
  case "$line $status" in "cnitool doctor"*" 3"|"cnitool doctor"*" 4"|"cnitool doctor"*" 5") status=0 ;; esac
  [ $status = 0 ] || { echo "$line"; echo "=> $status"; cat /mnt/err; }
done
echo "ran $#"
