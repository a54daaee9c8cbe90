// Package extra has conformance tests that the Gateway API's suite lacks, written from its GEPs in the suite's own form. They run beside the
// suite and are in no report. A test that the suite gets is to be removed here.
//
// It must never import anything of Moongate.
package extra

import (
	"embed"

	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

// Manifests are those of the tests, to be added to suite.ConformanceOptions.ManifestFS.
//
//go:embed tests
var Manifests embed.FS

// ConformanceTests are all tests of this package.
var ConformanceTests []suite.ConformanceTest
