# bridge: a prevResult is dropped
#
# SPEC 2, ADD: if a prevResult is there, a plugin must handle it by passing it through, or modifying it appropriately. bridge as second
# plugin of a list prints its own interfaces alone: the address of net1 is lost to all later plugins. (rule add.passes-prev-result-on)
# seen: net1 is not in the result
ip netns add a
CNI_COMMAND=ADD CNI_CONTAINERID=a CNI_NETNS=/run/netns/a CNI_IFNAME=eth0 CNI_PATH=$P "$P/bridge" >/run/result <<'END'
{"cniVersion":"1.1.0","name":"n","type":"bridge","bridge":"cni0","prevResult":{"cniVersion":"1.1.0",
  "interfaces":[{"name":"net1","sandbox":"/run/netns/a"}],"ips":[{"address":"192.0.2.9/24","interface":0}]}}
END
cat /run/result
grep -q '"eth0"' /run/result && ! grep -q '"net1"' /run/result && echo "net1 is not in the result"
