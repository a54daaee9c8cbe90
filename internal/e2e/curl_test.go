package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// jars are the cookies of curl's files, by test and file.
var jars sync.Map

// curl does what a curl line of the documents asks for, so that the lines are tested where no curl is. It knows the flags
// that they use and returns the status and what curl would print.
func curl(t testing.TB, line string) (int, string) {
	t.Helper()
	words := shellWords(t, line)
	if words[0] != "curl" {
		t.Fatalf("%q is no curl line", line)
	}
	method, url, format, include, discard := "GET", "", "", false, false
	header := http.Header{}
	resolve := map[string]string{}
	trust := &tls.Config{}
	var certificate, key, proxiedClient string
	var data io.Reader
	var jar string
	for i := 1; i < len(words); i++ {
		next := func() string { i++; return words[i] }
		switch w := words[i]; w {
		case "-s":
		case "-i", "-si":
			include = true
		case "-sI":
			method, include = "HEAD", true
		case "-k":
			trust.InsecureSkipVerify = true
		case "-d":
			method, data = "POST", strings.NewReader(next())
		case "--haproxy-clientip":
			proxiedClient = next()
		case "-o":
			if to := next(); to != os.DevNull {
				t.Fatalf("%q writes a file", line)
			}
			discard = true
		case "-w":
			format = next()
		case "-X":
			method = next()
		case "-H":
			name, value, _ := strings.Cut(next(), ":")
			header.Add(name, strings.TrimSpace(value))
		case "--resolve":
			part := strings.SplitN(next(), ":", 3)
			resolve[part[0]+":"+part[1]] = net.JoinHostPort(part[2], part[1])
		case "-b", "-c": // both, of one file
			jar = next()
		case "--cert":
			certificate = next()
		case "--key":
			key = next()
		case "--cacert":
			text, err := os.ReadFile(next())
			if err != nil {
				t.Fatal(err)
			}
			trust.RootCAs = x509.NewCertPool()
			if !trust.RootCAs.AppendCertsFromPEM(text) {
				t.Fatalf("no certificate in %s", words[i])
			}
		default:
			if strings.HasPrefix(w, "-") {
				t.Fatalf("curl flag %s of %q is not known to the test", w, line)
			}
			url = w
		}
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true, ForceAttemptHTTP2: strings.Contains(format, "%{http_version}"),
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if to := resolve[addr]; to != "" {
				addr = to
			}
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil && proxiedClient != "" {
				_, err = fmt.Fprintf(c, "PROXY TCP4 %s 127.0.0.1 4660 80\r\n", proxiedClient)
			}
			return c, err
		}}
	req, err := http.NewRequest(method, url, data)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	if host := header.Get("Host"); host != "" {
		req.Host = host
		header.Del("Host")
	}
	kept := t.Name() + " " + jar
	if v, ok := jars.Load(kept); ok && jar != "" {
		for _, c := range v.([]*http.Cookie) {
			req.AddCookie(c)
		}
	}
	client := &http.Client{Transport: transport, Timeout: patience, CheckRedirect: noRedirects.CheckRedirect}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if cookies := resp.Cookies(); jar != "" && len(cookies) > 0 {
		jars.Store(kept, cookies)
		t.Cleanup(func() { jars.Delete(kept) }) // the test may run again
	}
	text := string(body)
	if include {
		var head strings.Builder
		fmt.Fprintf(&head, "%s %s\r\n", resp.Proto, resp.Status)
		resp.Header.Write(&head)
		text = head.String() + "\r\n" + text
	}
	if discard {
		text = ""
	}
	text += strings.NewReplacer("%{http_version}", strings.TrimSuffix(strings.TrimPrefix(resp.Proto, "HTTP/"), ".0"), "%{http_code}", strconv.Itoa(resp.StatusCode), `\n`, "\n").Replace(format)
	return resp.StatusCode, text
}

// shellWords splits a line as a shell does, as far as the documents need it: blanks and quotes. What a shell would expand or interpret it refuses.
func shellWords(t testing.TB, line string) []string {
	t.Helper()
	var words []string
	var word strings.Builder
	quote, some := rune(0), false
	for _, c := range line + " " {
		switch {
		case quote == 0 && (c == '\'' || c == '"'):
			quote, some = c, true
		case c == quote:
			quote = 0
		case quote != '\'' && strings.ContainsRune("$`\\", c), quote == 0 && strings.ContainsRune("{}*?[]~&|;<>()!#", c):
			t.Fatalf("a shell takes %q of %q for something else: put it in quotes", c, line)
		case c == ' ' && quote == 0:
			if some {
				words = append(words, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteRune(c)
			some = true
		}
	}
	if quote != 0 || len(words) == 0 {
		t.Fatalf("cannot split %q", line)
	}
	return words
}
