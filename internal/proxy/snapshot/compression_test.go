package snapshot

import (
	"slices"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/compression"
)

func TestCompileCompression(t *testing.T) {
	const gzip, brotli = config.ContentEncoding_CONTENT_ENCODING_GZIP, config.ContentEncoding_CONTENT_ENCODING_BROTLI
	list := func(all ...*config.Compressor) *config.Compression { return &config.Compression{Compressors: all} }
	for _, tc := range []struct {
		in   *config.Compression
		want compression.Policy
		ok   bool
	}{
		{nil, nil, true},
		{list(), nil, true},
		{list(&config.Compressor{Encoding: brotli, MinContentLength: 30}, &config.Compressor{Encoding: gzip, MinContentLength: 1 << 31}),
			compression.Policy{{Encoding: compression.Brotli, MinLength: 30}, {Encoding: compression.Gzip, MinLength: 1 << 31}}, true},
		{list(&config.Compressor{Encoding: gzip}), compression.Policy{{Encoding: compression.Gzip, MinLength: 1}}, true}, // of an empty body there is nothing to compress
		{list(&config.Compressor{MinContentLength: 30}), nil, false},
		{list(&config.Compressor{Encoding: gzip}, &config.Compressor{Encoding: gzip}), nil, false},
	} {
		got, err := compileCompression(tc.in)
		if (err == nil) != tc.ok || tc.ok && !slices.Equal(got, tc.want) {
			t.Errorf("%v: got %v, %v", tc.in, got, err)
		}
	}
}
