// Command image makes Moongate's container image, for several architectures in one
// archive in the layout of the OCI, without a container engine: static binaries, the
// certificates of public authorities and a user, nothing else. Beside it goes a bill of materials, <archive>.cdx.json. The same input gives the
// same digest. It is a module of its own, so that nothing it needs is the product's; it must never
// import the product.
//
//	image -name ghcr.io/moongate-dev/moongate:v1 -version v1 -revision 0123abcd -created 1700000000 \
//	  -o moongate-image.tar amd64=bin/image/amd64/moongate arm64=bin/image/arm64/moongate
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// options are the input of an image.
type options struct {
	name              string // with its tag, for whoever imports the archive
	version, revision string // of what is in it
	created           time.Time
	binaries          []binary // in the order of the index
}

// binary is the program for one architecture, by Go's name of it.
type binary struct{ arch, file string }

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	var o options
	flags.StringVar(&o.name, "name", "", "name of the image with its tag")
	flags.StringVar(&o.version, "version", "", "version, for a label")
	flags.StringVar(&o.revision, "revision", "", "commit, for a label")
	created := flags.Int64("created", 0, "when the commit was made, in seconds since 1970; never the time of the build")
	archive := flags.String("o", "", "the archive to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.created = time.Unix(*created, 0).UTC()
	for _, arg := range flags.Args() {
		arch, file, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCHITECTURE=BINARY", arg)
		}
		o.binaries = append(o.binaries, binary{arch, file})
	}
	if o.name == "" || *archive == "" || len(o.binaries) == 0 {
		return errors.New("give -name, -o and at least one ARCHITECTURE=BINARY")
	}
	if !strings.Contains(o.name[strings.LastIndex(o.name, "/")+1:], ":") {
		return fmt.Errorf("-name %s has no tag", o.name)
	}
	index, err := build(o)
	if err != nil {
		return err
	}
	if err := writeSBOM(sbomName(*archive), o, index); err != nil {
		return err
	}
	if err := write(*archive, o.name, index); err != nil {
		return err
	}
	return report(out, *archive, o.name, index)
}
