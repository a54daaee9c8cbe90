//go:build conformance

package conformance

import (
	"context"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/test/conformance/extra"
)

var only = flag.String("only", "", "regular expression of the names of the tests to run; writes no report")

const patience = 2 * time.Minute

// TestConformance runs the suite with the suite's own flags. Features come from
// the GatewayClass, always: given by flag, only the core would run.
func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	if options.EnableAllSupportedFeatures || len(options.SupportedFeatures)+len(options.ExemptFeatures)+len(options.SkipTests) > 0 ||
		options.RunTest != "" || options.SkipProvisionalTests {
		t.Fatal("features come from the GatewayClass, and no test is skipped; -only runs some tests")
	}
	supported := awaitFeatures(t, options.Client, options.GatewayClassName)
	awaitNamespacesGone(t, options.Client)
	if foreign := Foreign(supported); foreign != nil {
		t.Errorf("the GatewayClass claims what is no feature of a gateway: %v", foreign)
	}
	// A profile more is as good a reason to look as a profile less.
	if claimed := Claimed(supported); !slices.Equal(claimed, options.ConformanceProfiles) {
		t.Errorf("the GatewayClass claims profiles %v, the run is for %v", claimed, options.ConformanceProfiles)
	}
	chosen := choose(t)
	var executed recorder
	options.Hook = executed.record
	// Parallel tests run after this function; cleanups run after those, the first one last.
	t.Cleanup(func() {
		if difference := Difference(executed.names(), Expected(chosen, supported)); difference != "" {
			t.Errorf("executed tests:\n%s", difference)
		}
		t.Logf("%d of %d tests executed", len(executed.names()), len(tests.ConformanceTests)+len(extra.ConformanceTests))
	})
	if *only == "" {
		if options.ReportOutputPath != "" {
			t.Cleanup(func() { checkReport(t, options.ReportOutputPath, options.ConformanceProfiles) })
		}
		conformance.RunConformanceWithOptions(t, options)
		return
	}
	s, err := suite.NewConformanceTestSuite(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Setup(t, chosen)
	if err := s.Run(t, chosen); err != nil {
		t.Fatal(err)
	}
}

// choose returns the tests that -only names, of the suite or, where it has none, of package extra; or all of the suite. The others have a run of their
// own: tests of the suite wait until all Gateways of its namespaces are programmed, and some of theirs never are.
func choose(t *testing.T) []suite.ConformanceTest {
	pattern, err := regexp.Compile("^(" + *only + ")$")
	if err != nil {
		t.Fatalf("-only: %v", err)
	}
	var chosen []suite.ConformanceTest
	if *only == "" {
		return tests.ConformanceTests
	}
	for _, all := range [][]suite.ConformanceTest{tests.ConformanceTests, extra.ConformanceTests} {
		for _, test := range all {
			if pattern.MatchString(test.ShortName) {
				chosen = append(chosen, test)
			}
		}
		if len(chosen) > 0 {
			break
		}
	}
	if len(chosen) == 0 {
		t.Fatalf("-only: no test is named %s", *only)
	}
	return chosen
}

// recorder collects which tests were not skipped.
type recorder struct {
	mu       sync.Mutex
	executed []string
}

func (r *recorder) record(t *testing.T, test suite.ConformanceTest, _ *suite.ConformanceTestSuite) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !t.Skipped() {
		r.executed = append(r.executed, test.ShortName)
	}
}

func (r *recorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.executed))
}

// awaitFeatures waits until the GatewayClass is accepted and says what is supported.
func awaitFeatures(t *testing.T, c client.Client, name string) []features.FeatureName {
	t.Helper()
	var class gatewayv1.GatewayClass
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := c.Get(t.Context(), types.NamespacedName{Name: name}, &class)
		if err == nil && accepted(&class) && len(class.Status.SupportedFeatures) > 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("GatewayClass %s is not accepted with supportedFeatures after %s: %v %+v", name, patience, err, class.Status)
		}
	}
	var supported []features.FeatureName
	for _, feature := range class.Status.SupportedFeatures {
		supported = append(supported, features.FeatureName(feature.Name))
	}
	return supported
}

func accepted(class *gatewayv1.GatewayClass) bool {
	return slices.ContainsFunc(class.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Type == string(gatewayv1.GatewayClassConditionStatusAccepted) && condition.Status == "True" &&
			condition.ObservedGeneration == class.Generation
	})
}

// awaitNamespacesGone waits for what an earlier run on the same cluster has left to end.
func awaitNamespacesGone(t *testing.T, c client.Client) {
	t.Helper()
	for _, name := range []string{suite.InfrastructureNamespace, suite.AppBackendNamespace, suite.WebBackendNamespace} {
		for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			var namespace corev1.Namespace
			err := c.Get(context.Background(), types.NamespacedName{Name: name}, &namespace)
			if apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp == nil {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("namespace %s of an earlier run does not end: %v %+v", name, err, namespace.Status)
			}
		}
	}
}

// checkReport reads what the suite wrote, as those who get it will.
func checkReport(t *testing.T, path string, wanted []suite.ConformanceProfileName) {
	content, err := os.ReadFile(path)
	if err != nil {
		t.Errorf("the report: %v", err)
		return
	}
	var report confv1.ConformanceReport
	if err := yaml.UnmarshalStrict(content, &report); err != nil {
		t.Errorf("the report: %v", err)
		return
	}
	var reported []string
	for _, profile := range report.ProfileReports {
		reported = append(reported, profile.Name)
		statuses := []confv1.Status{profile.Core}
		if profile.Extended != nil {
			statuses = append(statuses, profile.Extended.Status)
		}
		for _, status := range statuses {
			if status.Result != confv1.Success || status.Failed > 0 || status.Skipped > 0 {
				t.Errorf("profile %s: %s", profile.Name, describe(status))
			}
		}
		if profile.Core.Passed == 0 {
			t.Errorf("profile %s: no test of the core", profile.Name)
		}
	}
	var names []string
	for _, name := range wanted {
		names = append(names, string(name))
	}
	slices.Sort(names)
	slices.Sort(reported)
	if difference := Difference(reported, names); difference != "" {
		t.Errorf("profiles of the report: %s", difference)
	}
}

func describe(status confv1.Status) string {
	content, err := yaml.Marshal(status)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(content), "\n", ", ")
}
