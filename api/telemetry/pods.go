package telemetry

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// Limits on queries to Kubernetes.
const (
	maxPodEvents = 20
	fetchObjects = 500
)

// podList contains the fields of a list of pods that describe restarts.
type podList struct {
	Metadata page
	Items    []struct {
		Metadata objectName
		Status   struct {
			ContainerStatuses []struct {
				Name         string
				RestartCount int
				LastState    struct {
					Terminated *struct {
						Reason     string
						ExitCode   int
						FinishedAt time.Time
					}
				}
			}
		}
	}
}

// page is the metadata of a page of a list. Continue isn't empty if more pages follow.
type page struct{ Continue string }

type objectName struct {
	Name              string
	CreationTimestamp time.Time
}

// eventList is a list of events.
type eventList struct {
	Metadata page
	Items    []struct {
		Metadata       objectName
		InvolvedObject objectName
		Reason         string
		Message        string
		Type           string
		Count          int
		LastTimestamp  *time.Time
		EventTime      *time.Time
	}
}

// podSuffix is a regular expression for what Kubernetes appends to the name of a Deployment, DaemonSet, Job, CronJob or
// StatefulSet to name its pods. The letters are those of SafeEncodeString in k8s.io/apimachinery.
const podSuffix = "-([0-9]+|(([bcdfghjklmnpqrstvwxz2456789]{5,10}|[0-9]{8})-)?[bcdfghjklmnpqrstvwxz2456789]{5})"

var podSuffixes = regexp.MustCompile("^" + podSuffix + "$")

// isPodOf reports whether a pod belongs to a workload that is called like the service.
func isPodOf(pod, service string) bool {
	suffix, ok := strings.CutPrefix(pod, service)
	return ok && (suffix == "" || podSuffixes.MatchString(suffix))
}

// pods returns restarts and events of the suspect's pods, newest first. The suspect's pods are q.Pod or, if that is
// empty, all pods of a workload that is called like the service. If there are too many pods or events to read, pods
// returns both a result and an error.
func (b *Backends) pods(ctx context.Context, q *Question) ([]contract.PodEvent, error) {
	all := []contract.PodEvent{}
	path, label := "/api/v1", url.Values{"limit": {strconv.Itoa(fetchObjects)}}
	if b.options.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(b.options.Namespace)
	}
	ours := func(pod string) bool { return isPodOf(pod, q.Service) }
	kinds := url.Values{"limit": label["limit"], "fieldSelector": {"involvedObject.kind=Pod"}}
	if q.Pod != "" {
		ours = func(pod string) bool { return pod == q.Pod }
		label.Set("fieldSelector", "metadata.name="+q.Pod)
		kinds.Set("fieldSelector", "involvedObject.kind=Pod,involvedObject.name="+q.Pod)
	}
	add := func(at time.Time, x *contract.PodEvent) {
		if ours(x.Pod) && !at.Before(q.From) && !at.After(q.To) {
			x.At = at.UTC()
			all = append(all, *x)
		}
	}
	var pods podList
	if err := b.get(ctx, &b.options.Kubernetes, path+"/pods", label, &pods); err != nil {
		return all, err
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if end := c.LastState.Terminated; end != nil {
				add(end.FinishedAt, &contract.PodEvent{
					Pod:     p.Metadata.Name,
					Reason:  end.Reason,
					Warning: end.ExitCode != 0,
					Text: fmt.Sprintf("container %s ended with exit code %d; %d restarts in all",
						c.Name, end.ExitCode, c.RestartCount),
				})
			}
		}
	}
	var events eventList
	if err := b.get(ctx, &b.options.Kubernetes, path+"/events", kinds, &events); err != nil {
		return all, err
	}
	for i := range events.Items {
		e := &events.Items[i]
		at := e.Metadata.CreationTimestamp
		if e.LastTimestamp != nil {
			at = *e.LastTimestamp
		} else if e.EventTime != nil {
			at = *e.EventTime
		}
		text := e.Message[:min(len(e.Message), maxLine)]
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		add(at, &contract.PodEvent{
			Pod:     e.InvolvedObject.Name,
			Reason:  e.Reason,
			Warning: e.Type == "Warning",
			Text:    strings.ToValidUTF8(text, ""),
		})
	}
	var err error
	if pods.Metadata.Continue+events.Metadata.Continue != "" {
		err = failure{"has more pods or events than were read; set kubernetes.namespace in the configuration"}
	}
	slices.SortStableFunc(all, func(x, y contract.PodEvent) int { return y.At.Compare(x.At) })
	return all[:min(len(all), maxPodEvents)], err
}
