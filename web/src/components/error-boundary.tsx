import { Component, type ReactNode } from "react";

type Props = { children: ReactNode };
type State = { why: string | null };

// ErrorBoundary shows an error in place of a view. Usually the script of the view could not be loaded, because the
// service has stopped or was updated.
export class ErrorBoundary extends Component<Props, State> {
  override state: State = { why: null };

  static getDerivedStateFromError(error: unknown): State {
    return { why: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    if (this.state.why === null) return this.props.children;
    return (
      <div className="state bad" role="alert">
        <h1>This page could not be displayed</h1>
        <p>The service may have stopped, or may have been updated since this page was loaded. ({this.state.why})</p>
        <button type="button" onClick={() => location.reload()}>
          Reload
        </button>
      </div>
    );
  }
}
