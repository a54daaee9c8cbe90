package ratelimit

import (
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// documentedUser is the command of docs/tasks/global-rate-limits.md that makes a user of Redis.
func documentedUser(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/tasks/global-rate-limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "ACL SETUSER moongate ") {
			return strings.Fields(line)
		}
	}
	t.Fatal("the page does not say how a user of Redis is made")
	return nil
}

// asUser is a server's address for the documented user.
func asUser(server *testkit.Redis, database string) string {
	return (&url.URL{Scheme: "redis", User: url.UserPassword("moongate", "PASSWORD"), Host: server.Address, Path: database}).String()
}

// forbidden is what Redis answers a user that lacks a permission, itself or in a script.
var forbidden = regexp.MustCompile("NOPERM|can't (run|access)|no permissions")

// TestUserOfRedis: the user that is documented is all that limits need: it decides, charges and is probed in any database; nothing else is open to it.
func TestUserOfRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	command(t, server, documentedUser(t)...)
	for _, gcra := range []bool{false, true} {
		for _, database := range []string{"0", "1"} {
			c := patient(asUser(server, database), gcra)
			c.KeyPrefix = "production:"
			redis := connected(t, c)
			r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 2, RequestCost: 1, ResponseCost: 1, HeaderFields: []*config.RateLimitValue{each("a")}})
			var d Decision
			req := request(t, "GET /", "192.0.2.1", "A: x")
			if r.Check(req, redis, &d); d.Limited || d.Undecided {
				t.Fatalf("GCRA %v, database %s: the first request: %+v", gcra, database, d)
			}
			d.Charge()
			testkit.Eventually(t, "the cost is taken", func() bool { r.Check(req, redis, &d); return d.Limited })
			if up, undecided, uncharged := redis.Report(); !up || undecided != 0 || uncharged != 0 {
				t.Errorf("GCRA %v, database %s: up %v, %d undecided, %d uncharged", gcra, database, up, undecided, uncharged)
			}
		}
	}
	o, err := RedisOptions(asUser(server, "0"))
	if err != nil {
		t.Fatal(err)
	}
	o.DisableCache, o.ForceSingleClient, o.ClientSetInfo = true, true, rueidis.DisableClientSetInfo
	user, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	if err := user.Do(t.Context(), user.B().Ping().Build()).Error(); err != nil {
		t.Errorf("PING, which keeps connections alive: %v", err)
	}
	for _, words := range [][]string{{"SET", "moongate:w:x", "1"}, {"SET", "production:other", "1"}, {"MGET", "other"}, {"EVAL", "return redis.call('SET', KEYS[1], '1')", "1", "other"},
		{"EVAL", "return redis.call('DEL', KEYS[1])", "1", "production:moongate:w:x"}, {"GET", "production:moongate:w:x"}, {"KEYS", "*"}, {"FLUSHALL"}, {"CONFIG", "GET", "*"}, {"ACL", "WHOAMI"}} {
		err := user.Do(t.Context(), user.B().Arbitrary(words...).Build()).Error()
		if err == nil || !forbidden.MatchString(err.Error()) {
			t.Errorf("%v is not refused for want of a permission: %v", words, err)
		}
	}
}

// TestUserOfRedisLacksACommand: none of the documented permissions can be left out, but for that which keeps connections alive.
func TestUserOfRedisLacksACommand(t *testing.T) {
	server := testkit.StartRedis(t)
	whole := documentedUser(t)
	for _, word := range whole {
		if !strings.HasPrefix(word, "+") && !strings.HasPrefix(word, "~") || word == "+ping" {
			continue
		}
		command(t, server, "SCRIPT", "FLUSH") // so that it is loaded again
		command(t, server, slices.DeleteFunc(slices.Clone(whole), func(w string) bool { return w == word })...)
		c := patient(asUser(server, "1"), false)
		c.KeyPrefix = "production:"
		r := newRedis(c, &missed{}, slog.New(slog.DiscardHandler))
		<-r.tried
		if up, _, _ := r.Report(); up {
			t.Errorf("limits count for a user without %s", word)
		}
		r.close()
	}
}
