package translate

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// redises contains the Redis servers for global rate limits: the one of Options, and those of GatewayParameters, for the Gateways
// whose parameters name one.
type redises struct {
	usual *config.RateLimitService // that of Options; nil if none
	other *config.RateLimitService // the settings for those of parameters, without an address

	refs     *incremental.Collection[name, redisRef] // by Gateway
	bySecret *incremental.Index[name, name, redisRef]
	named    *incremental.Collection[name, *namedRedis] // by Gateway
}

// redisRef refers to the address of a Redis server.
type redisRef struct {
	Secret name
	Key    string
}

// namedRedis is the Redis server that the parameters of a Gateway name, or why it cannot be used.
type namedRedis struct {
	Service *config.RateLimitService
	Problem *condition.Problem
	Unread  bool // its Secret could not be read: proxies keep the address that they have
}

func newRedises(e *incremental.Engine, o *Options, in *inputs, gateways *gateways) *redises {
	rs := &redises{other: &config.RateLimitService{}}
	if o.RateLimits != nil {
		rs.other = o.RateLimits
	}
	if rs.other.Address != "" {
		rs.usual = rs.other
	}
	rs.refs = incremental.Map(e, "Redis that parameters name", gateways.terms,
		func(_ *incremental.View, _ name, t listenerTerms) (redisRef, bool) {
			return t.Redis, t.Redis != redisRef{}
		}, same[redisRef])
	rs.bySecret = incremental.NewIndex(rs.refs, "Gateways by the Secret with their Redis", func(_ name, ref redisRef) []name { return []name{ref.Secret} })
	rs.named = incremental.Map(e, "Redis of a Gateway", rs.refs,
		func(v *incremental.View, _ name, ref redisRef) (*namedRedis, bool) {
			s, exists := incremental.Fetch(v, in.secrets.Collection, ref.Secret)
			service := proto.CloneOf(rs.other)
			if _, unread := incremental.Fetch(v, in.unread.Collection, ref.Secret); unread && !exists {
				service.Address = ""
				return &namedRedis{Service: service, Unread: true}, true
			}
			address, p := readRedis(s, exists, ref)
			if p != nil {
				return &namedRedis{Problem: p}, true
			}
			service.Address = address
			return &namedRedis{Service: service}, true
		}, func(a, b *namedRedis) bool {
			return sameMessage(a.Service, b.Service) && sameDeeply(a.Problem, b.Problem) && a.Unread == b.Unread
		})
	return rs
}

// redisOf returns the Redis server that a class's parameters in a namespace name; the zero value if none.
func redisOf(s *v1alpha1.GatewayParametersSpec, namespace string) redisRef {
	if s == nil || s.ClassOnly == nil || s.ClassOnly.RateLimit == nil || s.ClassOnly.RateLimit.Redis == nil {
		return redisRef{}
	}
	ref := &s.ClassOnly.RateLimit.Redis.URLSecretRef
	return redisRef{name{namespace, ref.Name}, ref.Key}
}

// of returns the Redis server of a Gateway, without the Gateway's key, or why policies with global limits are refused there.
func (rs *redises) of(v *incremental.View, gateway name) (*config.RateLimitService, *condition.Problem) {
	if r, is := incremental.Fetch(v, rs.named, gateway); is {
		return r.Service, r.Problem
	}
	if rs.usual == nil {
		return nil, condition.NewProblem(gwv1.PolicyReasonInvalid, fieldGlobal, "start Moongate with --redis, name one in the class's GatewayParameters, or use rateLimit.local",
			"there is no Redis in which it could count")
	}
	return rs.usual, nil
}

// unread returns a sentence about a Gateway whose Redis is in a Secret that could not be read, "" for any other.
func (rs *redises) unread(v *incremental.View, gateway name) string {
	if r, is := incremental.Fetch(v, rs.named, gateway); !is || !r.Unread {
		return ""
	}
	ref, _ := incremental.Fetch(v, rs.refs, gateway)
	return "Secret " + ref.Secret.String() + ", which has the address of Redis, could not be read; proxies that have it keep it"
}

const fieldGlobal = "spec.rateLimit.global"

// readRedis reads the address of a Redis server from a Secret. A problem does not contain the address, which may contain a password.
func readRedis(s *corev1.Secret, exists bool, ref redisRef) (address string, p *condition.Problem) {
	wrong := func(remedy, format string, args ...any) (string, *condition.Problem) {
		p := condition.NewProblem(gwv1.PolicyReasonInvalid, fieldGlobal, remedy, format, args...)
		p.What = "there is no Redis in which it could count: " + p.What
		return "", p
	}
	if !exists {
		return wrong("create it, or correct spec.classOnly.rateLimit.redis of the GatewayParameters", "Secret %s, which GatewayParameters name, does not exist or cannot be read", ref.Secret)
	}
	data, has := s.Data[ref.Key]
	if !has {
		return wrong("add it, or correct spec.classOnly.rateLimit.redis of the GatewayParameters", "Secret %s, which GatewayParameters name, has no key %q", ref.Secret, ref.Key)
	}
	address = strings.TrimSpace(string(data)) // a file often ends in a newline
	if !isRedisAddress(address) {
		return wrong("write it like 192.0.2.1:6379, or redis://user:password@host:6379/0", "key %q of Secret %s is neither host:port nor a URL of Redis", ref.Key, ref.Secret)
	}
	return address, nil
}

// maxRedisAddress is the maximum length of an address in bytes.
const maxRedisAddress = 2048

// isRedisAddress reports whether text is a host and a port, or a Redis URL that a proxy can use: if the proxy rejected it, requests
// would not be limited.
func isRedisAddress(text string) bool {
	if len(text) > maxRedisAddress || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	bare := !strings.Contains(text, "/")
	if bare {
		text = "redis://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || bare && (u.Port() == "" || u.User != nil) {
		return false
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && len(validation.IsDNS1123Subdomain(strings.ToLower(u.Hostname()))) > 0 {
		return false
	}
	if database, has := strings.CutPrefix(u.Path, "/"); has {
		if n, err := strconv.ParseUint(database, 10, 31); err != nil || strconv.FormatUint(n, 10) != database {
			return false
		}
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" || err == nil && port > 0
}
