package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// XBackendTrafficPolicy configures how traffic to backends is handled: how often failed requests are retried (GEP-3388), and which requests of
// a client go to the same endpoint (GEP-1619). It has the fields of Gateway API v1.7.0, and the fields for session persistence of earlier
// versions.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=gateway-api,shortName=xbtrafficpolicy
// +kubebuilder:metadata:labels="gateway.networking.k8s.io/policy=Direct"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type XBackendTrafficPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines the desired behavior.
	Spec BackendTrafficPolicySpec `json:"spec"`

	// Status defines the observed state.
	// +optional
	Status gwv1.PolicyStatus `json:"status,omitempty"`
}

// XBackendTrafficPolicyList is a list of XBackendTrafficPolicies.
//
// +kubebuilder:object:root=true
type XBackendTrafficPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []XBackendTrafficPolicy `json:"items"`
}

// BackendTrafficPolicySpec defines the desired behavior of an XBackendTrafficPolicy.
type BackendTrafficPolicySpec struct {
	// TargetRefs refer to the backends, in the namespace of the policy. If several policies target a backend, the oldest is used.
	//
	// +listType=map
	// +listMapKey=group
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	TargetRefs []gwv1.LocalPolicyTargetReference `json:"targetRefs"`

	// RetryConstraint limits the number of retries, for all routes together that configure retry. If a retry
	// would exceed the limit, the client is answered with 503.
	//
	// +optional
	RetryConstraint *RetryConstraint `json:"retryConstraint,omitempty"`

	// SessionPersistence sends the requests of a session to the same endpoint.
	//
	// +optional
	SessionPersistence *SessionPersistence `json:"sessionPersistence,omitempty"`
}

// RetryConstraint limits retries. A retry is sent if either the budget or the minimum rate allows it.
type RetryConstraint struct {
	// Budget is the share of requests that may be retried.
	//
	// +optional
	// +kubebuilder:default={percent: 20, interval: "10s"}
	Budget *BudgetDetails `json:"budget,omitempty"`

	// MinRetryRate is the rate of retries that is always allowed, so that retries are possible when there are few requests.
	//
	// +optional
	// +kubebuilder:default={count: 10, interval: "1s"}
	MinRetryRate *RequestRate `json:"minRetryRate,omitempty"`
}

// BudgetDetails is the share of requests that may be retried.
type BudgetDetails struct {
	// Percent is the maximum number of retries for every 100 requests of clients.
	//
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int `json:"percent,omitempty"`

	// Interval is the period over which requests and retries are counted.
	//
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:message="from 1s to 1h",rule="!(duration(self) < duration('1s') || duration(self) > duration('1h'))"
	Interval *gwv1.Duration `json:"interval,omitempty"`
}

// RequestRate is a number of requests in an interval.
type RequestRate struct {
	// Count is the number of requests. Defaults to 10.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Count *int `json:"count,omitempty"`

	// Interval is the length of the interval. Defaults to 1s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:message="above 0s and at most 1h",rule="!(duration(self) == duration('0s') || duration(self) > duration('1h'))"
	Interval *gwv1.Duration `json:"interval,omitempty"`
}

// SessionPersistence sends the requests of a session to the same endpoint. In Gateway API v1.7.0 the name of the session is in cookie or header; in earlier versions it is
// in sessionName.
//
// +kubebuilder:validation:XValidation:message="AbsoluteTimeout must be specified when cookie lifetimeType is Permanent",rule="!has(self.cookie) || !has(self.cookie.lifetimeType) || self.cookie.lifetimeType != 'Permanent' || has(self.absoluteTimeout)"
// +kubebuilder:validation:XValidation:message="AbsoluteTimeout must be specified when cookie lifetimeType is Permanent",rule="!has(self.cookieConfig) || !has(self.cookieConfig.lifetimeType) || self.cookieConfig.lifetimeType != 'Permanent' || has(self.absoluteTimeout)"
// +kubebuilder:validation:XValidation:message="cookie must be nil if type is not Cookie",rule="!has(self.cookie) || self.type == 'Cookie'"
// +kubebuilder:validation:XValidation:message="cookieConfig must be nil if type is not Cookie",rule="!has(self.cookieConfig) || self.type == 'Cookie'"
// +kubebuilder:validation:XValidation:message="header must be nil if type is not Header",rule="!has(self.header) || self.type == 'Header'"
// +kubebuilder:validation:XValidation:message="cookie and header replace sessionName, idleTimeout and cookieConfig",rule="!has(self.cookie) && !has(self.header) || !has(self.sessionName) && !has(self.idleTimeout) && !has(self.cookieConfig)"
type SessionPersistence struct {
	// SessionName is the name of the cookie or header, as in versions before Gateway API v1.7.0.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	SessionName *string `json:"sessionName,omitempty"`

	// AbsoluteTimeout is the maximum duration of a session.
	//
	// +optional
	AbsoluteTimeout *gwv1.Duration `json:"absoluteTimeout,omitempty"`

	// IdleTimeout is the time without requests after which a session ends, as in versions before Gateway API v1.7.0.
	//
	// +optional
	IdleTimeout *gwv1.Duration `json:"idleTimeout,omitempty"`

	// Type specifies whether the session uses a cookie or a header.
	//
	// +optional
	// +kubebuilder:default=Cookie
	Type *gwv1.SessionPersistenceType `json:"type,omitempty"`

	// CookieConfig configures the lifetime of the cookie, as in versions before Gateway API v1.7.0.
	//
	// +optional
	CookieConfig *FormerCookieConfig `json:"cookieConfig,omitempty"`

	// Cookie configures the cookie.
	//
	// +optional
	Cookie *gwv1.CookieConfig `json:"cookie,omitempty"`

	// Header configures the header.
	//
	// +optional
	Header *gwv1.HeaderConfig `json:"header,omitempty"`
}

// FormerCookieConfig configures the cookie as in versions before Gateway API v1.7.0.
type FormerCookieConfig struct {
	// LifetimeType specifies whether clients keep the cookie for absoluteTimeout (Permanent), or until the end of their own session.
	//
	// +optional
	// +kubebuilder:default=Session
	LifetimeType *gwv1.CookieLifetimeType `json:"lifetimeType,omitempty"`
}
