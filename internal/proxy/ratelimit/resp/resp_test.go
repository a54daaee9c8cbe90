package resp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// TestScan counts answers, however they come, and refuses what is none.
func TestScan(t *testing.T) {
	for _, c := range []struct {
		in    string
		whole int
		err   error
	}{
		{"+OK\r\n", 1, nil},
		{"+\r\n-ERR no\r\n:12\r\n:-12\r\n_\r\n,1.5\r\n#t\r\n(12\r\n", 8, nil},
		{"$0\r\n\r\n$3\r\na\r\n\r\n$-1\r\n!2\r\nno\r\n=5\r\ntxt:a\r\n", 5, nil},
		{"*0\r\n*-1\r\n%0\r\n~1\r\n:1\r\n", 4, nil},
		{"*2\r\n%1\r\n+a\r\n*1\r\n$1\r\na\r\n:1\r\n+next\r\n", 2, nil},
		{"%1\r\n+a\r\n", 0, nil}, // not whole
		{strings.Repeat("*1\r\n", maxDepth) + ":1\r\n", 1, nil},
		{strings.Repeat("*1\r\n", maxDepth+1), 0, errTooDeep},
		{"*8193\r\n", 0, errTooLarge},
		{"%4097\r\n", 0, errTooLarge},
		{"*4096\r\n*4096\r\n*1\r\n", 0, errTooLarge},
		{"$1048577\r\n", 0, errTooLarge},
		{"*2\r\n$600000\r\n" + strings.Repeat("a", 600_000) + "\r\n$600000\r\n", 0, errTooLarge},
		{"$99999999999999999999\r\n", 0, errTooLarge},
		{"+" + strings.Repeat("a", maxLine+1), 0, errTooLarge},
		{":99999999999999999999\r\n", 0, errNumber},
		{":-9223372036854775808\r\n", 1, nil},
		{"!5000\r\n", 0, errTooLarge},
		{"$1\r\naa\r\n", 0, errLineEnd},
		{"$1\r\na\r\r", 0, errLineEnd},
		{"+a\n", 0, errLineEnd},
		{"+a\rb", 0, errLineEnd},
		{"*\r\n", 0, errNumber},
		{"*-\r\n", 0, errNumber},
		{"*-2\r\n", 0, errNumber},
		{"%-1\r\n", 0, errNumber},
		{"$1-\r\n", 0, errNumber},
		{"$0x1\r\n", 0, errNumber},
		{"#\r\n", 0, errNumber},
		{"#1\r\n", 0, errNumber},
		{"_1\r\n", 0, errNumber},
	} {
		for _, size := range []int{len(c.in), 1, 3} {
			var s scanner
			whole, err := 0, error(nil)
			for in := []byte(c.in); len(in) > 0 && err == nil; {
				part := in[:min(size, len(in))]
				in = in[len(part):]
				var n int
				n, err = s.scan(part)
				whole += n
			}
			if name := c.in[:min(len(c.in), 40)]; whole != c.whole || !errors.Is(err, c.err) {
				t.Errorf("%q by %d: %d answers, %v; want %d, %v", name, size, whole, err, c.whole, c.err)
			} else if err == nil && whole > 0 && s.begun() {
				t.Errorf("%q by %d: another answer has begun", name, size)
			}
		}
	}
	for _, in := range []string{">2\r\n", "|1\r\n", ";1\r\n", ".\r\n", "$?\r\n", "*?\r\n", "\r\n", "PING\r\n", "\x00"} {
		if _, err := new(scanner).scan([]byte(in)); err == nil {
			t.Errorf("%q passes", in)
		}
	}
}

// TestHostileServer has a client talk to a server that answers with what ends the process of one without Conn: the test's.
func TestHostileServer(t *testing.T) {
	for name, answer := range map[string]string{
		"an answer too many":         "+OK\r\n+OK\r\n+OK\r\n",
		"a pushed message":           ">2\r\n+subscribe\r\n+a\r\n",
		"a negative length":          "$-5\r\n",
		"a length beyond all memory": "$9000000000000000000\r\n",
		"an array beyond all memory": "*9000000000000000000\r\n",
		"arrays without end":         strings.Repeat("*1\r\n", 1<<16),
		"half of a further answer":   "+OK\r\n+O",
	} {
		t.Run(name, func(t *testing.T) {
			client := dialed(t, func(command string) string {
				if strings.Contains(command, "PING") {
					return answer
				}
				return helloAnswer
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 2 {
				err := client.Do(ctx, client.B().Ping().Build()).Error()
				if err != nil {
					if !strings.Contains(err.Error(), "does not answer as Redis does") && !errors.Is(err, io.EOF) {
						t.Errorf("the error is %v", err)
					}
					return
				}
			}
			t.Error("nothing was found wrong")
		})
	}
}

// helloAnswer is that to HELLO 3.
const helloAnswer = "%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n"

// dialed returns a client of a server that answers each command by answer.
func dialed(t testing.TB, answer func(command string) string) rueidis.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, answer)
		}
	}()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{l.Addr().String()}, DialCtxFn: Dialer(nil), DisableCache: true, DisableRetry: true,
		ForceSingleClient: true, AlwaysPipelining: true, PipelineMultiplex: -1, ClientSetInfo: rueidis.DisableClientSetInfo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func serve(c net.Conn, answer func(command string) string) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		var s scanner
		command := ""
		for {
			b, err := r.ReadByte()
			if err != nil {
				return
			}
			command += string(b)
			if whole, err := s.scan([]byte{b}); err != nil {
				return
			} else if whole > 0 {
				break
			}
		}
		if _, err := io.WriteString(c, answer(command)); err != nil {
			return
		}
	}
}

// FuzzAnswers has a client read answers: whatever they are, the process lives, and so does a call for no longer than its context.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{"+PONG\r\n", "*2\r\n:1\r\n$1\r\na\r\n", "%1\r\n+a\r\n_\r\n", "-ERR x\r\n", "$-1\r\n", "+a\r\n+b\r\n", ">1\r\n+a\r\n", "#t\r\n,1\r\n(1\r\n"} {
		f.Add([]byte(seed), []byte(helloAnswer))
		f.Add([]byte("+PONG\r\n"), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer, hello []byte) {
		us, them := net.Pipe()
		go serve(them, func(command string) string {
			if strings.Contains(command, "HELLO") {
				return string(hello)
			}
			return string(answer)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}, DisableCache: true, DisableRetry: true,
			ForceSingleClient: true, AlwaysPipelining: true, PipelineMultiplex: -1, ClientSetInfo: rueidis.DisableClientSetInfo,
			Dialer: net.Dialer{Timeout: 100 * time.Millisecond},
			DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
				return NewConn(us), nil
			}})
		if err != nil {
			us.Close()
			return
		}
		client.Do(ctx, client.B().Ping().Build()).ToArray()
		us.Close() // so that Close does not wait for an answer
		client.Close()
	})
}
