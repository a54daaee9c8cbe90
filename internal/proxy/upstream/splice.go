package upstream

import "github.com/moongate-dev/moongate/internal/proxy/splice"

// Splices reports whether what the backend sends can be moved into a pipe.
func (c *Conn) Splices() bool { return !c.plain && c.probe.rawConn() != nil }

// Splice waits for more of a response and moves up to limit bytes of it into the pipe, which is empty. splice.ErrRefused is that nothing
// ever will be moved.
func (c *Conn) Splice(p *splice.Pipe, limit int64) (int, error) { return c.splicer().Fill(p, limit) }

// SpliceMore is Splice of what has come already, without waiting; 0 where nothing has.
func (c *Conn) SpliceMore(p *splice.Pipe, limit int64) int {
	n, _ := c.splicer().FillNow(p, limit)
	return n
}

func (c *Conn) splicer() *splice.Reader {
	if c.splicing == nil {
		c.splicing = &splice.Reader{}
		c.splicing.Init(c.probe.rawConn())
	}
	return c.splicing
}
