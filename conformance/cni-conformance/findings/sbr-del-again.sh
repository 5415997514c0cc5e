# sbr: DEL fails once the namespace is gone
#
# SPEC 2, DEL: plugins must accept multiple DEL calls, and return success if the interface or modifications are missing. A runtime that
# calls DEL again when the container's namespace was unmounted never gets rid of the container. (rule del.is-repeatable)
# seen: unknown FS magic on
call() { CNI_COMMAND=$1 CNI_CONTAINERID=a CNI_NETNS=/run/netns/a CNI_IFNAME=eth0 CNI_PATH=$P "$P/sbr"; echo "status $?"; }
ip netns add a
ip -n a link add eth0 type bridge
ip -n a link set eth0 up
ip -n a address add 10.99.0.2/16 dev eth0
conf='{"cniVersion":"1.1.0","name":"n","type":"sbr","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/a"}],
  "ips":[{"address":"10.99.0.2/16","gateway":"10.99.0.1","interface":0}]}}'
call ADD <<<"$conf"
call DEL <<<"$conf"
umount /run/netns/a
call DEL <<<"$conf"
