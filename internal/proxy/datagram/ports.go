package datagram

import (
	"fmt"
	"os"
)

// LocalPorts returns how many ports the kernel can choose local ones from. Each session takes one, whatever its
// endpoint; everything else in the network namespace, such as DNS resolvers, has the rest. If the number is unknown, it
// is Linux's default.
func LocalPorts() int {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	return portsIn(string(text))
}

func portsIn(text string) int {
	const first, last = 32768, 60999
	var from, to int
	if n, _ := fmt.Sscan(text, &from, &to); n != 2 || from < 1 || to < from || to > 65535 {
		from, to = first, last
	}
	return to - from + 1
}
