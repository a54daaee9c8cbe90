package node

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
)

// The service proxy speaks for the first host. Where a Service leads a pod back
// to itself, it rewrites the source address for that host's pods only, since any
// other host would have a proxy of its own. These rules do the same for the other hosts.
const hairpinTable = `
table ip other-hosts {
	set pods { type ipv4_addr . ipv4_addr; }
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ct status dnat ip saddr . ip daddr @pods masquerade
	}
}
`

func makeHairpin() error { return nft(hairpinTable) }

func addHairpin(pod netip.Addr) error {
	return nft(fmt.Sprintf("add element ip other-hosts pods { %s . %s }", pod, pod))
}

func removeHairpin(pod netip.Addr) error {
	return nft(fmt.Sprintf("delete element ip other-hosts pods { %s . %s }", pod, pod))
}

func nft(script string) error {
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(script)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, output)
	}
	return nil
}
