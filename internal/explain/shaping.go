package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// shaping describes the faults that a BackendTrafficPolicy injects, and its limits, one line each.
func shaping(t *config.RuleTraffic) (lines []string) {
	if d := t.FaultInjection.GetDelay(); d != nil {
		lines = append(lines, fmt.Sprintf("fault injection delays %s of requests by %s", share(d.PerMillion), time.Duration(d.DelayNanos)))
	}
	if a := t.FaultInjection.GetAbort(); a != nil {
		status := fmt.Sprintf("status %d", a.HttpStatus)
		if a.GrpcStatus != nil {
			status = fmt.Sprintf("grpc-status %d", *a.GrpcStatus)
		}
		lines = append(lines, fmt.Sprintf("fault injection answers %s of requests with %s", share(a.PerMillion), status))
	}
	if n := t.RequestBufferBytes; n > 0 {
		lines = append(lines, fmt.Sprintf("the request body is read whole before a backend is chosen, 413 above %d bytes, and protocols are not switched", n))
	}
	lines = append(lines, upgradesOf(t)...)
	if a := t.AdmissionControl; a != nil {
		line := fmt.Sprintf("admission control rejects up to %d%% of requests while less than %d%% of those of %s succeed", a.MaxRejectionPercent, a.MinSuccessPercent,
			time.Duration(a.SamplingWindowNanos))
		if a.MinRequestsPerSecond > 0 {
			line += fmt.Sprintf(", from %d requests a second on", a.MinRequestsPerSecond)
		}
		lines = append(lines, line)
	}
	if b := t.BandwidthLimit; b != nil {
		var parts []string
		if n := b.RequestBytesPerSecond; n > 0 {
			parts = append(parts, fmt.Sprintf("request bodies pass at %d bytes a second", n))
		}
		if n := b.ResponseBytesPerSecond; n > 0 {
			parts = append(parts, fmt.Sprintf("response bodies at %d bytes a second", n))
		}
		lines = append(lines, strings.Join(parts, ", ")+", all of the rule together")
	}
	if c := t.Compression; c != nil {
		var parts []string
		for _, o := range c.Compressors {
			parts = append(parts, fmt.Sprintf("%s from %d bytes on", encodingNames[o.Encoding], o.MinContentLength))
		}
		lines = append(lines, "responses are compressed as Accept-Encoding says, which the backend does not get: "+strings.Join(parts, ", "))
	}
	if t.RouteStatName != "" {
		lines = append(lines, "requests are counted as "+t.RouteStatName+", too, in moongate_route_stat_requests_total")
	}
	return lines
}

// encodingNames are the names in Content-Encoding.
var encodingNames = map[config.ContentEncoding]string{
	config.ContentEncoding_CONTENT_ENCODING_GZIP:   "gzip",
	config.ContentEncoding_CONTENT_ENCODING_BROTLI: "br",
	config.ContentEncoding_CONTENT_ENCODING_ZSTD:   "zstd",
}

// share returns a number per million as a percentage.
func share(perMillion uint32) string {
	return strconv.FormatFloat(float64(perMillion)/10_000, 'f', -1, 64) + "%"
}
