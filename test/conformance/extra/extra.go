// Package extra has conformance tests that the Gateway API's suite lacks, written from its GEPs in the suite's own form. They run beside the
// suite and are in no report. A test that the suite gets is to be removed here.
//
// It must never import anything of Moongate.
package extra

import "sigs.k8s.io/gateway-api/conformance/utils/suite"

// ConformanceTests are all tests of this package.
var ConformanceTests []suite.ConformanceTest
