# First what the folders below may hide.
mount -t tmpfs tmpfs /dev/shm
touch /dev/shm/cnitool /dev/shm/cni-plugins
mount --bind "$1" /dev/shm/cnitool; mount --bind "$2" /dev/shm/cni-plugins
for dir in /run /etc /opt /var/lib /mnt /srv /tmp; do mount -t tmpfs tmpfs $dir; done
mkdir -p /run/netns /etc/cni/net.d /opt/cni/bin /mnt/path
: > /run/netns/web; unshare --net=/run/netns/web true
for plugin in bridge host-local; do ln -s /dev/shm/cni-plugins /opt/cni/bin/$plugin; done
ln -s /dev/shm/cnitool /mnt/path/cnitool
PATH=/mnt/path:/usr/sbin:/usr/bin:/sbin:/bin
echo '{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge","capabilities":{"mac":true},
  "ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}]}' > /etc/cni/net.d/10-pods.conflist
file() { cat > /etc/cni/net.d/20-$1.conflist; }
network() { echo '{"cniVersion":"1.1.0","name":"'$1'","plugins":[{"type":"'$1'"}]}' | file $1; }
script() { network $1; printf "$2" > /opt/cni/bin/$1; chmod 755 /opt/cni/bin/$1; }
read_only() { mkdir -p $1; mount --bind $1 $1; mount -o remount,bind,ro $1; }
full() { mkdir -p $1; mount -t tmpfs -o size=64k tmpfs $1; dd if=/dev/zero of=$1/fill bs=1k count=64 2>/dev/null; }
# What a failed call may leave: locks, and the folders that they are in.
seen() { find /etc /opt /var/lib /srv /tmp -printf '%p %y %s %l\n' | grep -v -e /cni/locks -e '/cni d' -e '^/var/lib d' -e '/results d' -e '/lock f' -e '/networks d' -e '/pods d' -e last_reserved_ip | sort; }
cd /srv
