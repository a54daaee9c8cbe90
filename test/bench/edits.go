//go:build linux

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moongate-dev/moongate/test/bench/proc"
	"github.com/moongate-dev/moongate/test/bench/response"
)

const (
	// poll is the time between two requests for a route that is awaited.
	poll = time.Millisecond
	// steady is how many requests must be answered 200 after the first.
	steady = 20
	// patience is how long a route may take to be served.
	patience = 10 * time.Second
)

// route is what route.yaml.tmpl sees.
type route struct{ Name, Host, Path string }

// writeRoutes fills a folder with routes, one file each: every second one on the host
// that is measured, the others on hosts of their own.
func writeRoutes(folder string, n int) error {
	for i := range n {
		r := route{Name: fmt.Sprintf("other-%d", i), Host: apiHost, Path: fmt.Sprintf("/other/%d", i)}
		if i%2 == 1 {
			r.Host = fmt.Sprintf("host-%d.example.test", i)
		}
		if err := r.write(folder); err != nil {
			return err
		}
	}
	return nil
}

// write replaces the route's file in one step, as an editor or a deployment tool would.
func (r *route) write(folder string) error {
	path := filepath.Join(folder, r.Name+".yaml")
	if err := render(path+".new", "route.yaml.tmpl", r); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// edit is number i of the run: a new file, or with odd i another path in the file before.
func edit(i int) route {
	return route{Name: fmt.Sprintf("edit-%d", i/2), Host: apiHost, Path: fmt.Sprintf("/edited/%d", i)}
}

// runEdits measures the time from the change of a file to the first request that obeys it.
func (b *bench) runEdits() error {
	if !b.hasMoongate() {
		return nil
	}
	c, err := b.start("moongate", variant{Routes: b.routes})
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", c.plain.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	p := &prober{conn: conn, in: bufio.NewReader(conn)}
	var took []time.Duration
	for i := range b.edits {
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
		d, err := p.edit(filepath.Join(c.dir, "manifests"), edit(i))
		if err != nil {
			return fmt.Errorf("edit %d: %w", i, err)
		}
		took = append(took, d)
	}
	slices.Sort(took)
	resident, err := b.settled(c, proc.Resident) // with the garbage of the start given back
	if err != nil {
		return err
	}
	b.printEdits(took, p.wrong, resident)
	b.failures += p.wrong
	return c.stop()
}

// prober asks on one keep-alive connection.
type prober struct {
	conn  net.Conn
	in    *bufio.Reader
	wrong int // answers that are neither the old state nor the new one
}

// edit writes a route and asks until it is served.
func (p *prober) edit(folder string, r route) (time.Duration, error) {
	request := request("GET", apiHost, r.Path, "")
	if before, err := p.ask(request); err != nil {
		return 0, err
	} else if before != 404 {
		return 0, fmt.Errorf("%d before the route exists, want 404", before)
	}
	start := time.Now()
	if err := r.write(folder); err != nil {
		return 0, err
	}
	for {
		status, err := p.ask(request)
		if err != nil {
			return 0, err
		}
		if status == 200 {
			break
		}
		if status != 404 {
			p.wrong++
		}
		if time.Since(start) > patience {
			return 0, fmt.Errorf("still %d after %v", status, patience)
		}
		time.Sleep(poll)
	}
	took := time.Since(start)
	for range steady {
		time.Sleep(poll)
		if status, err := p.ask(request); err != nil {
			return 0, err
		} else if status != 200 {
			p.wrong++
		}
	}
	return took, nil
}

func (p *prober) ask(request []byte) (status int, err error) {
	if err := p.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := p.conn.Write(request); err != nil {
		return 0, err
	}
	answer, err := response.Read(p.in)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscanf(answer.StatusLine, "HTTP/1.1 %d", &status)
	return status, err
}
