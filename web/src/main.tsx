import { createRoot } from "react-dom/client";
import { base } from "./api/client.ts";
import { App } from "./app.tsx";
import "./style.css";

// Whoever comes past the proxy that the base path is for finds the page, too.
if (`${location.pathname}/`.startsWith(`${base}/`)) createRoot(document.getElementById("root")!).render(<App />);
else location.replace(base + location.pathname + location.search + location.hash);
