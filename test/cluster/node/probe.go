package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moongate-dev/moongate/test/cluster/sandbox"
)

// probe calls say with true after successThreshold successes in a row and with
// false after failureThreshold failures in a row, each time anew, until ctx ends.
func (c *container) probe(ctx context.Context, probe *corev1.Probe, process *sandbox.Process, say func(ok bool, why string)) {
	if !sleep(ctx, seconds(probe.InitialDelaySeconds)) {
		return
	}
	var successes, failures int32
	for {
		err := c.probeOnce(ctx, probe, process)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			successes, failures = successes+1, 0
			if successes >= max(probe.SuccessThreshold, 1) {
				say(true, "")
			}
		} else {
			successes, failures = 0, failures+1
			if failures >= max(probe.FailureThreshold, 1) {
				say(false, err.Error())
			}
		}
		if !sleep(ctx, max(seconds(probe.PeriodSeconds), time.Second)) {
			return
		}
	}
}

func seconds[T int32 | int64](n T) time.Duration { return time.Duration(n) * time.Second }

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (c *container) probeOnce(ctx context.Context, probe *corev1.Probe, process *sandbox.Process) error {
	ctx, cancel := context.WithTimeout(ctx, max(seconds(probe.TimeoutSeconds), time.Second))
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		return c.probeHTTP(ctx, probe.HTTPGet)
	case probe.TCPSocket != nil:
		address, err := c.target(probe.TCPSocket.Host, probe.TCPSocket.Port)
		if err != nil {
			return err
		}
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	case probe.Exec != nil:
		return execIn(ctx, process, probe.Exec.Command)
	}
	return fmt.Errorf("the probe names no action")
}

var probeTransport = &http.Transport{
	DisableKeepAlives: true,
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // as the kubelet: a probe asks for life, not identity
}

func (c *container) probeHTTP(ctx context.Context, action *corev1.HTTPGetAction) error {
	address, err := c.target(action.Host, action.Port)
	if err != nil {
		return err
	}
	scheme := "http"
	if action.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/", nil)
	if err != nil {
		return err
	}
	if request.URL, err = request.URL.Parse(action.Path); err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/test-cluster")
	for _, header := range action.HTTPHeaders {
		if http.CanonicalHeaderKey(header.Name) == "Host" {
			request.Host = header.Value
		} else {
			request.Header.Add(header.Name, header.Value)
		}
	}
	response, err := probeTransport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	io.Copy(io.Discard, io.LimitReader(response.Body, 10<<10))
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", response.StatusCode)
	}
	return nil
}

// target resolves a port by number or by the name it has in the container.
func (c *container) target(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = c.pod.address.String()
	}
	number := port.IntVal
	if port.Type == intstr.String {
		for _, p := range c.spec.Ports {
			if p.Name == port.StrVal {
				number = p.ContainerPort
			}
		}
		if number == 0 {
			parsed, err := strconv.ParseUint(port.StrVal, 10, 16)
			if err != nil {
				return "", fmt.Errorf("the container has no port named %s", port.StrVal)
			}
			number = int32(parsed)
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(int(number))), nil
}

// execIn runs command in the container, and kills it when ctx ends.
func execIn(ctx context.Context, process *sandbox.Process, command []string) error {
	run, err := process.Command(command)
	if err != nil {
		return err
	}
	defer run.ExtraFiles[0].Close()
	output := &tail{limit: 1 << 10}
	run.Stdout, run.Stderr = output, output
	if err := run.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		syscall.Kill(-run.Process.Pid, syscall.SIGKILL)
		<-ended
		return fmt.Errorf("command %q timed out", command)
	}
	if _, failed := err.(*exec.ExitError); failed {
		return fmt.Errorf("command %q: %w: %s", command, err, output.bytes)
	}
	return err
}

// tail keeps the last bytes written to it.
type tail struct {
	bytes []byte
	limit int
}

func (t *tail) Write(b []byte) (int, error) {
	t.bytes = append(t.bytes, b...)
	if extra := len(t.bytes) - t.limit; extra > 0 {
		t.bytes = t.bytes[extra:]
	}
	return len(b), nil
}
