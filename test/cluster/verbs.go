package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/moongate-dev/moongate/test/cluster/apply"
	"github.com/moongate-dev/moongate/test/cluster/image"
)

// exec becomes the command, in the network in which the cluster's host lives:
// Services, pods and load balancer addresses answer there, and nowhere else.
func (c cluster) exec(args []string) error {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return errUsage
	}
	p, err := c.process()
	if err != nil {
		return err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.pid))
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the namespace is this thread's, and this thread survives the exec
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the cluster's network: %w", err)
	}
	return unix.Exec(program, args, append(os.Environ(), "KUBECONFIG="+c.kubeconfig()))
}

func (c cluster) apply(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return errUsage
	}
	objects, err := apply.Read(paths)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := apply.New(config)
	if err != nil {
		return err
	}
	if err := client.Apply(ctx, objects); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d objects applied\n", len(objects))
	return nil
}

// image parses by hand: flags follow the two names, and everything after -- is
// the program's.
func (c cluster) image(args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	binary, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	store := image.Store{Dir: c.images()}
	if filepath.Ext(binary) == ".tar" {
		if len(args) > 2 {
			return errUsage
		}
		return store.Archive(args[0], binary)
	}
	mapped := image.Image{Name: args[0]}
	target, files := "/"+filepath.Base(binary), map[string]string{}
	for args = args[2:]; len(args) > 0; args = args[2:] {
		if args[0] == "--" {
			mapped.Cmd = args[1:]
			break
		}
		if len(args) == 1 {
			return errUsage
		}
		switch args[0] {
		case "-user":
			mapped.User = args[1]
		case "-at":
			target = args[1]
		case "-file":
			inside, outside, _ := strings.Cut(args[1], "=")
			if files[inside], err = filepath.Abs(outside); err != nil {
				return err
			}
		default:
			return errUsage
		}
	}
	files[target] = binary
	mapped.Files, mapped.Entrypoint = files, []string{target}
	return store.Add(mapped)
}

// ask sends a request to the cluster's process and prints the answer.
func (c cluster) ask(method, path string) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.socket())
	}}}
	request, err := http.NewRequest(method, "http://cluster"+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return errors.New(strings.TrimSpace(string(answer)))
	}
	_, err = os.Stdout.Write(answer)
	return err
}
