package snapshot

import (
	"fmt"
	"slices"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/compression"
)

var encodings = map[config.ContentEncoding]compression.Encoding{
	config.ContentEncoding_CONTENT_ENCODING_GZIP:   compression.Gzip,
	config.ContentEncoding_CONTENT_ENCODING_BROTLI: compression.Brotli,
	config.ContentEncoding_CONTENT_ENCODING_ZSTD:   compression.Zstd,
}

// compileCompression returns nil if nothing is compressed.
func compileCompression(c *config.Compression) (compression.Policy, error) {
	var p compression.Policy
	for _, o := range c.GetCompressors() {
		e, ok := encodings[o.Encoding]
		if !ok {
			return nil, fmt.Errorf("compression: unknown encoding %s", o.Encoding)
		}
		if slices.ContainsFunc(p, func(other compression.Offer) bool { return other.Encoding == e }) {
			return nil, fmt.Errorf("compression: encoding %s occurs twice", e)
		}
		p = append(p, compression.Offer{Encoding: e, MinLength: max(int64(o.MinContentLength), 1)})
	}
	return p, nil
}
