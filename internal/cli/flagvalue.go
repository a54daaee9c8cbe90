package cli

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// durationVar adds a flag for a duration that must not be negative.
func durationVar(flags *pflag.FlagSet, v *time.Duration, name string, value time.Duration, usage string) {
	*v = value
	flags.Var((*durationFlag)(v), name, usage)
}

type durationFlag time.Duration

func (d *durationFlag) String() string { return time.Duration(*d).String() }
func (d *durationFlag) Type() string   { return "duration" }

func (d *durationFlag) Set(text string) error {
	v, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return errors.New("write a number and a unit, as in 30s or 500ms")
	case v < 0:
		return errors.New("it is negative; write 0s for none")
	}
	*d = durationFlag(v)
	return nil
}

// addressVar adds a flag for a host and a port.
func addressVar(flags *pflag.FlagSet, v *string, name, value, usage string) {
	*v = value
	flags.Var((*addressFlag)(v), name, usage)
}

type addressFlag string

func (a *addressFlag) String() string { return string(*a) }
func (a *addressFlag) Type() string   { return "host:port" }

func (a *addressFlag) Set(text string) error {
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		return fmt.Errorf("it is a URL; leave out %s://, as in %s", scheme, host)
	}
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return errors.New("write a host and a port, as in 127.0.0.1:9901 or [::1]:9901")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port; write a number up to 65535", port)
	}
	*a = addressFlag(text)
	return nil
}
