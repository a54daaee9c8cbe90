package controller

import (
	"context"
	"errors"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// annotatedLeases sets AnnotationController in each Lease that is written, for which resourcelock.LeaseLock has no option.
type annotatedLeases struct {
	coordinationclient.LeasesGetter
	controllerName string
}

func (l annotatedLeases) Leases(namespace string) coordinationclient.LeaseInterface {
	return annotatedLease{l.LeasesGetter.Leases(namespace), l.controllerName}
}

type annotatedLease struct {
	coordinationclient.LeaseInterface
	controllerName string
}

func (l annotatedLease) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, AnnotationController, l.controllerName)
	return l.LeaseInterface.Create(ctx, lease, o)
}

func (l annotatedLease) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, AnnotationController, l.controllerName)
	return l.LeaseInterface.Update(ctx, lease, o)
}

// notedLock logs that the Lease cannot be read or written: when that begins, and when it ends. Each replica tries every second.
// Calls do not overlap.
type notedLock struct {
	resourcelock.Interface
	log     *slog.Logger
	trouble *string // election.trouble
	// lost is called when another replica has the Lease.
	lost func()
	// kept is called when this replica has written the Lease, with the time at which the write began.
	kept func(time.Time)
}

func (l *notedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.note(ctx, err)
	if err == nil && record.HolderIdentity != "" && record.HolderIdentity != l.Identity() {
		l.lost()
	}
	return record, raw, err
}

func (l *notedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	begin := time.Now()
	return l.wrote(ctx, begin, l.Interface.Create(ctx, record))
}

func (l *notedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	begin := time.Now()
	return l.wrote(ctx, begin, l.Interface.Update(ctx, record))
}

func (l *notedLock) wrote(ctx context.Context, begin time.Time, err error) error {
	l.note(ctx, err)
	if err == nil {
		l.kept(begin)
	}
	return err
}

func (l *notedLock) note(ctx context.Context, err error) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled), apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		// On a conflict, another replica was faster.
	case err == nil && *l.trouble != "":
		l.log.Info("the Lease can be read and written again", "lease", l.Describe())
		*l.trouble = ""
	case err != nil && *l.trouble == "":
		l.log.Error("the Lease cannot be read or written, trying every second; without it there is no leader, and proxies keep their configuration", "lease", l.Describe(), "error", err,
			"remedy", "if this is refused, let the controller's ServiceAccount create, get and update leases in its namespace")
		*l.trouble = err.Error()
	}
}
