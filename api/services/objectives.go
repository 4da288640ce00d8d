package services

import (
	"context"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// ListObjectives implements contract.StrictServerInterface.
func (a *Services) ListObjectives(
	ctx context.Context, _ contract.ListObjectivesRequestObject,
) (contract.ListObjectivesResponseObject, error) {
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	return contract.ListObjectives200JSONResponse{Items: s.Objectives, Epoch: s.Epoch()}, nil
}
