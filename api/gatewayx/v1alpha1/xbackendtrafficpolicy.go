package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// XBackendTrafficPolicy says how traffic to backends is handled: how often failed requests are tried again (GEP-3388), and which requests of
// a client go to the same endpoint (GEP-1619). It has the fields of Gateway API v1.7.0, and those of session persistence that versions
// before had.
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

	// Spec is what is asked for.
	Spec BackendTrafficPolicySpec `json:"spec"`

	// Status says what became of it.
	// +optional
	Status gwv1.PolicyStatus `json:"status,omitempty"`
}

// XBackendTrafficPolicyList is a list of them.
//
// +kubebuilder:object:root=true
type XBackendTrafficPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []XBackendTrafficPolicy `json:"items"`
}

// BackendTrafficPolicySpec is what an XBackendTrafficPolicy asks for.
type BackendTrafficPolicySpec struct {
	// TargetRefs name the backends, in the policy's own namespace. Of several policies for a backend the oldest is in force.
	//
	// +listType=map
	// +listMapKey=group
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	TargetRefs []gwv1.LocalPolicyTargetReference `json:"targetRefs"`

	// RetryConstraint bounds how many requests are tried again that failed, by all routes together that ask for it with retry. Where
	// more would be, the client is answered 503.
	//
	// +optional
	RetryConstraint *RetryConstraint `json:"retryConstraint,omitempty"`

	// SessionPersistence has the requests of a session go to one endpoint.
	//
	// +optional
	SessionPersistence *SessionPersistence `json:"sessionPersistence,omitempty"`
}

// RetryConstraint bounds retries. A retry is sent if either the budget or the minimum rate allows it.
type RetryConstraint struct {
	// Budget is the share of requests that may be tried again.
	//
	// +optional
	// +kubebuilder:default={percent: 20, interval: "10s"}
	Budget *BudgetDetails `json:"budget,omitempty"`

	// MinRetryRate is how many retries there may be whatever the budget says, so that few requests can be tried again at all.
	//
	// +optional
	// +kubebuilder:default={count: 10, interval: "1s"}
	MinRetryRate *RequestRate `json:"minRetryRate,omitempty"`
}

// BudgetDetails is the share of requests that may be tried again.
type BudgetDetails struct {
	// Percent is how many retries there may be for each 100 requests of clients.
	//
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int `json:"percent,omitempty"`

	// Interval is for how long before a retry both are counted.
	//
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:message="from 1s to 1h",rule="!(duration(self) < duration('1s') || duration(self) > duration('1h'))"
	Interval *gwv1.Duration `json:"interval,omitempty"`
}

// RequestRate is a number of requests in a time.
type RequestRate struct {
	// Count is the number; 10 if it is absent.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Count *int `json:"count,omitempty"`

	// Interval is the time; 1 s if it is absent.
	//
	// +optional
	// +kubebuilder:validation:XValidation:message="above 0s and at most 1h",rule="!(duration(self) == duration('0s') || duration(self) > duration('1h'))"
	Interval *gwv1.Duration `json:"interval,omitempty"`
}

// SessionPersistence has the requests of a session go to one endpoint. Gateway API v1.7.0 names the session in cookie or header; versions before it did so
// in sessionName.
//
// +kubebuilder:validation:XValidation:message="AbsoluteTimeout must be specified when cookie lifetimeType is Permanent",rule="!has(self.cookie) || !has(self.cookie.lifetimeType) || self.cookie.lifetimeType != 'Permanent' || has(self.absoluteTimeout)"
// +kubebuilder:validation:XValidation:message="AbsoluteTimeout must be specified when cookie lifetimeType is Permanent",rule="!has(self.cookieConfig) || !has(self.cookieConfig.lifetimeType) || self.cookieConfig.lifetimeType != 'Permanent' || has(self.absoluteTimeout)"
// +kubebuilder:validation:XValidation:message="cookie must be nil if type is not Cookie",rule="!has(self.cookie) || self.type == 'Cookie'"
// +kubebuilder:validation:XValidation:message="cookieConfig must be nil if type is not Cookie",rule="!has(self.cookieConfig) || self.type == 'Cookie'"
// +kubebuilder:validation:XValidation:message="header must be nil if type is not Header",rule="!has(self.header) || self.type == 'Header'"
// +kubebuilder:validation:XValidation:message="cookie and header replace sessionName, idleTimeout and cookieConfig",rule="!has(self.cookie) && !has(self.header) || !has(self.sessionName) && !has(self.idleTimeout) && !has(self.cookieConfig)"
type SessionPersistence struct {
	// SessionName is the name of the cookie or header, in the form before Gateway API v1.7.0.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	SessionName *string `json:"sessionName,omitempty"`

	// AbsoluteTimeout is for how long a session lasts at most.
	//
	// +optional
	AbsoluteTimeout *gwv1.Duration `json:"absoluteTimeout,omitempty"`

	// IdleTimeout is for how long a session lasts without a request, in the form before Gateway API v1.7.0.
	//
	// +optional
	IdleTimeout *gwv1.Duration `json:"idleTimeout,omitempty"`

	// Type is what carries the session.
	//
	// +optional
	// +kubebuilder:default=Cookie
	Type *gwv1.SessionPersistenceType `json:"type,omitempty"`

	// CookieConfig says how long clients keep the cookie, in the form before Gateway API v1.7.0.
	//
	// +optional
	CookieConfig *FormerCookieConfig `json:"cookieConfig,omitempty"`

	// Cookie describes the cookie.
	//
	// +optional
	Cookie *gwv1.CookieConfig `json:"cookie,omitempty"`

	// Header describes the header.
	//
	// +optional
	Header *gwv1.HeaderConfig `json:"header,omitempty"`
}

// FormerCookieConfig is what could be said of the cookie before Gateway API v1.7.0.
type FormerCookieConfig struct {
	// LifetimeType says whether clients keep the cookie for absoluteTimeout (Permanent), or until they end their own session.
	//
	// +optional
	// +kubebuilder:default=Session
	LifetimeType *gwv1.CookieLifetimeType `json:"lifetimeType,omitempty"`
}
