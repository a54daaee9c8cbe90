package backendtraffic

import (
	"fmt"

	"k8s.io/utils/ptr"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

// leastBandwidth is the lowest limit in bytes per second, because Envoy counts in KiB.
const leastBandwidth = 1 << 10

// maxTrailerPrefix is the maximum length of responseTrailers.prefix, which is part of each response.
const maxTrailerPrefix = 64

var unitSeconds = map[string]int64{"Second": 1, "Minute": 60, "Hour": 3600}

func (r *reader) bandwidthLimit(b *eg.BandwidthLimit) *config.BandwidthLimit {
	if b == nil {
		return nil
	}
	out := &config.BandwidthLimit{}
	if b.Request != nil {
		out.RequestBytesPerSecond = r.bandwidth(b.Request.Limit, "bandwidthLimit.request.limit")
	}
	if b.Response != nil {
		out.ResponseBytesPerSecond = r.bandwidth(b.Response.Limit, "bandwidthLimit.response.limit")
		if t := b.Response.ResponseTrailers; t != nil {
			prefix := ptr.Deref(t.Prefix, "")
			const field = "bandwidthLimit.response.responseTrailers.prefix"
			switch {
			case prefix != "" && !config.IsToken(prefix):
				r.invalid(field, "use letters, digits and hyphens", "names of trailers cannot begin with %q", prefix)
			case len(prefix) > maxTrailerPrefix:
				r.invalid(field, fmt.Sprintf("use at most %d characters", maxTrailerPrefix), "it has %d characters", len(prefix))
			}
			out.TrailerPrefix = &prefix
		}
	}
	if b.Request == nil && b.Response == nil {
		r.invalid("bandwidthLimit", "set request or response", "it has neither")
	}
	return out
}

// bandwidth reads a limit in bytes per second.
func (r *reader) bandwidth(v eg.BandwidthLimitValue, field string) uint64 {
	seconds, known := unitSeconds[v.Unit]
	if !known {
		r.invalid(field+".unit", "use Second, Minute or Hour", "%q is not known", v.Unit)
		return 0
	}
	n := v.Value.Value() / seconds
	if n < leastBandwidth {
		r.invalid(field, "use at least 1Ki for each Second", "%s for each %s is less than 1 KiB a second", v.Value.String(), v.Unit)
		return 0
	}
	return uint64(n)
}
