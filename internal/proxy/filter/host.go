package filter

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// maxHost is the longest host that the gateway writes, in bytes without the port.
const maxHost = 255

// Host checks a host name or IP literal of the configuration and returns it in the form for a URI: IPv6 in brackets
// (RFC 3986 section 3.2.2).
func Host(host string) ([]byte, error) {
	bare := host
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if bare, ok = strings.CutSuffix(inner, "]"); !ok {
			return nil, errors.New("the bracket is not closed")
		}
	}
	if ip, err := netip.ParseAddr(bare); err == nil && ip.Is6() && ip.Zone() == "" {
		return []byte("[" + bare + "]"), nil
	}
	if bare == "" || bare != host || len(bare) > maxHost {
		return nil, errors.New("it is not a host")
	}
	for _, label := range strings.Split(strings.TrimSuffix(bare, "."), ".") {
		if label == "" {
			return nil, errors.New("it has an empty label")
		}
		for _, c := range []byte(label) {
			if !hostByte(c) {
				return nil, errors.New("it holds the byte " + strconv.QuoteRune(rune(c)))
			}
		}
	}
	return []byte(bare), nil
}

// Authority is like Host, with an optional port after it.
func Authority(value string) ([]byte, error) {
	if b, err := Host(value); err == nil {
		return b, nil
	}
	colon := strings.LastIndexByte(value, ':')
	if colon < 0 {
		return Host(value)
	}
	host, err := Host(value[:colon])
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(value[colon+1:], 10, 16)
	if err != nil || port == 0 {
		return nil, errors.New("its port is not a number from 1 to 65535")
	}
	return strconv.AppendUint(append(host, ':'), port, 10), nil
}

func hostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '~'
}
