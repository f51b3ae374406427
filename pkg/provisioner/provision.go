package provisioner

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

var errBusy = errors.New("another try for the same volume is under way")

// provision makes the volume of one claim and saves its PersistentVolume. Whatever
// fails before the driver is asked leaves the state as it was: an earlier try may
// still be under way there.
func (s *session) provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	name := options.PVName
	if !s.busy.start(name) {
		return nil, controller.ProvisioningNoChange, errBusy
	}
	defer s.busy.end(name)
	if err := s.refuseStale(ctx, options.PVC, name); err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if creation := s.made(name); creation != nil {
		volume, state, err := s.saveMade(ctx, creation)
		s.settle(creation, state, err)
		return volume, state, err
	}
	options, migrated, err := s.translate(ctx, options)
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	creation, err := s.gather(ctx, options)
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	creation.Migrated = migrated
	if err := s.place(ctx, creation, options); err != nil {
		return nil, s.unfinished.reschedule(options.PVName, err), err
	}
	secrets, err := s.creationSecrets(ctx, creation)
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	if err := s.begin(ctx, creation); err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	volume, state, err := s.create(ctx, creation, secrets)
	s.settle(creation, state, err)
	return volume, state, err
}

// create asks the driver for the volume and saves its PersistentVolume.
func (s *session) create(ctx context.Context, creation *plan.Creation, secrets map[string]string) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	response, err := s.request(ctx, creation, secrets)
	if err != nil {
		return nil, creation.FailedState(err), s.failure("CreateVolume", err, secrets)
	}
	volume, state, err := s.judge(ctx, creation, response)
	if err != nil {
		return nil, state, err
	}
	state, err = s.save(ctx, creation, volume)
	return volume, state, err
}

// judge decides whether the driver's answer can be used, and deletes what was made
// where it cannot.
func (s *session) judge(ctx context.Context, creation *plan.Creation, response *csi.CreateVolumeResponse) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	volume, err := creation.Volume(response)
	if err != nil {
		state, err := s.discard(ctx, creation, response.GetVolume().GetVolumeId(), err)
		return nil, state, err
	}
	if err := s.config.Node.CheckPlace(volume); err != nil {
		state, err := s.misplaced(ctx, creation, volume, err)
		return nil, state, err
	}
	creation.Made = response
	return volume, controller.ProvisioningInBackground, nil
}

// request calls CreateVolume. The secrets are in nothing that is kept.
func (s *session) request(ctx context.Context, creation *plan.Creation, secrets map[string]string) (*csi.CreateVolumeResponse, error) {
	ctx = aboutMigrated(ctx, creation.Migrated)
	request := proto.CloneOf(creation.Request)
	request.Secrets = secrets
	return s.config.Driver.CreateVolume(ctx, request)
}

// discard deletes a volume that cannot be used. While that fails the volume is
// there, so the claim stays in progress: the next try gets the same volume from
// the driver and discards it again, also when the claim is deleted meanwhile.
func (s *session) discard(ctx context.Context, creation *plan.Creation, volumeID string, cause error) (controller.ProvisioningState, error) {
	if volumeID == "" {
		// Without an ID there is nothing that could be deleted.
		return controller.ProvisioningFinished, cause
	}
	owner, err := s.ownerOf(volumeID)
	if err != nil {
		return controller.ProvisioningInBackground, fmt.Errorf("%w; it was not deleted: %w", cause, err)
	}
	if owner != "" {
		return controller.ProvisioningFinished, fmt.Errorf("%w; it was not deleted, as PersistentVolume %s is for the same volume", cause, owner)
	}
	secrets, err := s.creationSecrets(ctx, creation)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.ProvisioningInBackground, fmt.Errorf("%w; it was not deleted: %w", cause, err)
	}
	request := &csi.DeleteVolumeRequest{VolumeId: volumeID, Secrets: secrets}
	if _, err := s.config.Driver.DeleteVolume(aboutMigrated(ctx, creation.Migrated), request); err != nil {
		return controller.ProvisioningInBackground,
			fmt.Errorf("%w; it could not be deleted: %w", cause, s.failure("DeleteVolume", err, secrets))
	}
	return controller.ProvisioningFinished, fmt.Errorf("%w; it was deleted", cause)
}

func (p *Provisioner) planOptions() plan.Options {
	options := p.config.Options
	options.Driver = p.config.Driver.Capabilities()
	return options
}

func (p *Provisioner) failure(method string, err error, secrets map[string]string) *plan.Failure {
	return plan.NewFailure(method, p.config.Driver.Capabilities().DriverName, err, plan.Redactor(secrets))
}
