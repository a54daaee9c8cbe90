// Command cluster runs a Kubernetes without containers or virtual machines, for
// tests and for use by hand: etcd, the real API server, controller manager, scheduler
// and service proxy, a DNS server, and a node that runs pods as processes in
// namespaces of their own. Everything lives in namespaces of one process, and
// ends with it. It is not shaped to any product: README.md says what it implements.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const usage = `usage: cluster [-name NAME] VERB [arguments]

  up [-nodes N] [-kube FILE] [-dns FILE]
                         start a cluster and print how to reach it
  down                   end it; what it held is gone
  exec [--] COMMAND...   run a command in its network, with KUBECONFIG set
  apply FILE|FOLDER...   apply manifests, server-side
  image NAME BINARY [-user UID] [-at PATH] [-file PATH=FILE]... [-- ARGUMENTS...]
                         let an image's name stand for a static program
  image NAME ARCHIVE.tar let it stand for an OCI archive
  parts                  list the parts of the control plane
  stop|kill|start PART   stop, crash or start one of them
`

func main() {
	if len(os.Args) == 2 && os.Args[1] == serveVerb {
		os.Exit(serve())
	}
	name := flag.String("name", "default", "which cluster, where several run")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	if flag.NArg() == 0 || strings.ContainsAny(*name, "/ ") {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, cluster{dir: filepath.Join(baseDir(), *name)}, flag.Arg(0), flag.Args()[1:])
	stop()
	if errors.Is(err, errUsage) {
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

func run(ctx context.Context, c cluster, verb string, args []string) error {
	switch verb {
	case "up":
		return c.up(ctx, args)
	case "down":
		return c.down()
	case "exec":
		return c.exec(args)
	case "apply":
		return c.apply(ctx, args)
	case "image":
		return c.image(args)
	case "parts":
		return c.ask("GET", "/parts")
	case "stop", "kill", "start":
		if len(args) == 1 {
			return c.ask("POST", "/parts/"+args[0]+"/"+verb)
		}
	}
	return errUsage
}

// cluster is one cluster's folder, the only thing that verbs share.
type cluster struct{ dir string }

func (c cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }
func (c cluster) images() string     { return filepath.Join(c.dir, "images") }
func (c cluster) logs() string       { return filepath.Join(c.dir, "log") }
func (c cluster) pki() string        { return filepath.Join(c.dir, "pki") }
func (c cluster) socket() string     { return filepath.Join(c.dir, "control.sock") }
func (c cluster) pidFile() string    { return filepath.Join(c.dir, "pid") }

// private is an empty folder in which the cluster mounts what nobody else sees.
func (c cluster) private() string { return filepath.Join(c.dir, "private") }

func baseDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("test-cluster-%d", os.Getuid()))
}
