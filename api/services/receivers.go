package services

import (
	"context"
	"regexp"
	"strings"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// AnnotateFromGitHub implements contract.StrictServerInterface.
func (a *Services) AnnotateFromGitHub(
	ctx context.Context, r contract.AnnotateFromGitHubRequestObject,
) (contract.AnnotateFromGitHubResponseObject, error) {
	report := deployAtGitHub(r.Body, query.Value(r.Params.Environment, ""))
	if report == nil {
		return contract.AnnotateFromGitHub204Response{}, nil
	}
	if report.Time == nil && access.Caller(ctx).Via == access.ViaSignature {
		return nil, refusal.New(refusal.Invalid, "a signed event needs created_at or published_at",
			"without a time, whoever has seen the event could repeat it later")
	}
	if r.Params.Service != nil {
		report.Service = r.Params.Service
	}
	x, err := a.report(ctx, engine.SourceGitHub, report)
	return contract.AnnotateFromGitHub200JSONResponse(x), err
}

// versionRef matches Git refs that look like versions, as many tags do and most branches don't.
var versionRef = regexp.MustCompile(`^v?[0-9]+\.`)

// deployAtGitHub returns the successful deployment or published release that a GitHub event reports, or nil if the
// event reports something else. If environment isn't empty, deployments to other environments are ignored.
func deployAtGitHub(e *contract.GitHubEvent, environment string) *contract.AnnotationRequest {
	report := &contract.AnnotationRequest{Kind: contract.AnnotationKindDeploy}
	if e.Repository != nil {
		report.Service = e.Repository.Name
	}
	switch d, status, release := e.Deployment, e.DeploymentStatus, e.Release; {
	case d != nil && status != nil:
		to := query.Value(status.Environment, "")
		if query.Value(status.State, "") != "success" || environment != "" && to != environment {
			return nil
		}
		ref, commit := query.Value(d.Ref, ""), query.Value(d.Sha, "")
		text := "GitHub deployed " + ref
		if versionRef.MatchString(ref) { // otherwise, we wait for the version in the spans
			report.Version = &ref
		}
		if commit != ref {
			text += " (" + commit[:min(len(commit), 7)] + ")"
		}
		if to != "" {
			text += " to " + to
		}
		report.Text, report.Time, report.Link = &text, status.CreatedAt, page(status.LogURL)
	case release != nil && query.Value(e.Action, "") == "published":
		report.Text, report.Version = new("GitHub released it"), release.TagName
		report.Time, report.Link = release.PublishedAt, page(release.HTMLURL)
	default:
		return nil
	}
	return report
}

// maxLink is the maximum length of the address of a page, as in the contract.
const maxLink = 2000

// page returns link, or nil if it isn't the address of a page: templates and GitHub leave some links empty.
func page(link *string) *string {
	if link == nil || len(*link) > maxLink ||
		!strings.HasPrefix(*link, "https://") && !strings.HasPrefix(*link, "http://") {
		return nil
	}
	return link
}

// AnnotateFromArgoCD implements contract.StrictServerInterface.
func (a *Services) AnnotateFromArgoCD(
	ctx context.Context, r contract.AnnotateFromArgoCDRequestObject,
) (contract.AnnotateFromArgoCDResponseObject, error) {
	b := r.Body
	text := "Argo CD synced " + b.App
	if revision := query.Value(b.Revision, ""); revision != "" {
		text += " to " + revision[:min(len(revision), 7)]
	}
	report := &contract.AnnotationRequest{
		Kind:    contract.AnnotationKindDeploy,
		Service: &b.App,
		Text:    &text,
		Time:    b.Time,
		Link:    page(b.Link),
	}
	if query.Value(b.Service, "") != "" {
		report.Service = b.Service
	}
	if images := query.Value(b.Images, nil); len(images) == 1 { // the revision is often from another repository
		report.Version = tagOf(images[0])
	}
	x, err := a.report(ctx, engine.SourceArgoCD, report)
	return contract.AnnotateFromArgoCD200JSONResponse(x), err
}

// tagOf returns the tag of an image, or nil if the image has no tag.
func tagOf(image string) *string {
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndexByte(image, '/')+1:]
	if _, tag, tagged := strings.Cut(name, ":"); tagged {
		return &tag
	}
	return nil
}
