import { createRoot } from "react-dom/client";
import { base } from "./api/client.ts";
import { App } from "./app.tsx";
import "./style.css";
import "./charts/charts.css";

// Without the proxy that the base path is for, redirect below the base path.
if (`${location.pathname}/`.startsWith(`${base}/`)) createRoot(document.getElementById("root")!).render(<App />);
else location.replace(base + location.pathname + location.search + location.hash);
